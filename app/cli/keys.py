"""``flask --app wsgi keys``: an organization's signing keys, and the master key that everything is sealed under."""

from __future__ import annotations

import click
from flask.cli import AppGroup

from app.cli.refusals import refusing
from app.operations.directory.lookups import get_organization_by_slug
from app.operations.grants.signing_keys import ALGORITHMS
from app.operations.maintenance import master_key
from app.operations.tokens import signing_key_lists
from app.operations.tokens.signing_key_lists import SigningKeyRecord
from app.rules.actor import Actor

keys_commands = AppGroup("keys", help="Signing keys of organizations, and the master key.")
_organization = click.option(
    "--organization", default="root", show_default=True, help="Id of the organization."
)


@keys_commands.command("list")
@_organization
@refusing
def list_command(organization: str) -> None:
    """Show the keys that verifiers are given: algorithm, state, when it changes next, kid."""
    for key in signing_key_lists.list_signing_keys(_operator(organization), organization):
        click.echo(_line(key))


@keys_commands.command("rotate")
@_organization
@click.option("--algorithm", type=click.Choice(ALGORITHMS), help="The one in its settings when left out.")
@click.option(
    "--now", is_flag=True, help="The key may be known to others: replace it at once, and withdraw it."
)
@refusing
def rotate_command(organization: str, algorithm: str | None, now: bool) -> None:
    """Publish the next signing key; after a day it signs by itself.

    The key before stays published until nothing that it signed can still be valid. With --now it is withdrawn
    instead, and so is every other key of the algorithm.
    """
    key = signing_key_lists.rotate_signing_key(
        _operator(organization), organization, algorithm=algorithm, emergency=now
    )
    click.echo(_line(key))
    if now:
        click.echo(
            "It signs from now on. ID tokens and JWT access tokens that an earlier key had signed verify no more: "
            "people sign in to their apps again, and APIs that check signatures refuse until apps fetch new tokens. "
            "Verifiers that keep keys may believe the withdrawn ones for as long as they do, five minutes as told.",
            err=True,
        )
    elif key.state == "next":
        click.echo("It is published, and signs by itself after a day.", err=True)
    else:
        click.echo("It signs from now on; the key before verifies for another day.", err=True)


@keys_commands.command("rewrap")
@refusing
def rewrap_command() -> None:
    """Wrap every organization's data key under the new master key.

    The new one is GATEHOUSE_MASTER_KEY (or …_FILE), the old one GATEHOUSE_PREVIOUS_MASTER_KEY (or …_FILE). Servers
    that have both keep working meanwhile. Ended half-way, the command goes on where it stopped.
    """
    done = master_key.rewrap_data_keys(Actor.system("", "command line"))
    click.echo(f"rewrapped {done.rewrapped}, already under the new key {done.unchanged}")
    if done.unreadable:
        raise click.ClickException(
            f"Neither key opens the data keys of: {', '.join(done.unreadable)}. Keep both keys, and restore "
            "the master key of these organizations."
        )
    click.echo("Every data key is under the new master key: the old one is needed no more.", err=True)


def _operator(slug: str) -> Actor:
    return Actor.system(get_organization_by_slug(slug).id, "command line")


def _line(key: SigningKeyRecord) -> str:
    return f"{key.algorithm} {key.state} {key.changes_at:%Y-%m-%dT%H:%M:%SZ} {key.kid}"
