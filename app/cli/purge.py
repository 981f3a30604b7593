"""``flask --app wsgi purge``: expired rows go now; the service does the same by itself."""

from __future__ import annotations

import click
from flask.cli import with_appcontext

from app.cli.refusals import refusing
from app.operations.maintenance.janitor import purge_expired
from app.rules.actor import Actor


@click.command("purge")
@with_appcontext
@refusing
def purge_command() -> None:
    """Remove what ended more than a day ago, and clients and organizations whose thirty days are over.

    Exit status 0: done. 2: another one is at it.
    """
    gone = purge_expired(Actor.system("", "command line"))
    if gone is None:
        click.echo("Another worker is purging at this moment.", err=True)
        raise SystemExit(2)
    for table, count in sorted(gone.items()):
        click.echo(f"{table}: {count}")
    click.echo(f"{sum(gone.values())} rows removed.", err=True)
