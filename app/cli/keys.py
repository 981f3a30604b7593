"""``flask --app wsgi keys rotate``: the successor of an organization's signing key."""

from __future__ import annotations

import click
from flask.cli import AppGroup

from app.cli.refusals import refusing
from app.operations.directory import organization_by_slug
from app.operations.protocol.signing_keys import ALGORITHMS, rotate
from app.rules.actor import Actor

keys_commands = AppGroup("keys", help="Signing keys of organizations.")


@keys_commands.command("rotate")
@click.option("--organization", default="root", show_default=True, help="Id of the organization.")
@click.option("--algorithm", type=click.Choice(ALGORITHMS), help="The one in its settings when left out.")
@click.option(
    "--now", is_flag=True, help="The key may be known to others: replace it at once, and withdraw it."
)
@refusing
def rotate_command(organization: str, algorithm: str | None, now: bool) -> None:
    """Publish the next signing key; a day later, the same command makes it sign.

    The key before stays published until nothing that it signed can still be valid; with --now it does not.
    """
    view = organization_by_slug(organization)
    chosen = algorithm or view.settings["oauth"]["signing"]["algorithm"]
    kid = rotate(Actor.system(view.id, "command line"), chosen, now=now)
    click.echo(f"{chosen} {kid}")
    if not now:
        click.echo(
            "It is published. Unless it was so for a day, run this again tomorrow to sign with it.", err=True
        )
