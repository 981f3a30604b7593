"""``flask --app wsgi purge``: delete expired rows now. The service also does this by itself."""

from __future__ import annotations

import click
from flask.cli import with_appcontext

from app.cli.errors import report_errors
from app.operations.maintenance.janitor import purge_expired
from app.rules.actor import Actor


@click.command("purge")
@with_appcontext
@report_errors
def purge_command() -> None:
    """Delete what expired more than a day ago, and clients and organizations deleted 30 days ago.

    Exit status 0: done. 2: another worker is purging.
    """
    gone = purge_expired(Actor.system("", "command line"))
    if gone is None:
        click.echo("Another worker is purging. Try again later.", err=True)
        raise SystemExit(2)
    for table, count in sorted(gone.items()):
        click.echo(f"{table}: {count}")
    click.echo(f"{sum(gone.values())} rows deleted.", err=True)
