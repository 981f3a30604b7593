"""``flask --app wsgi organizations``: list, suspend, delete, export and import organizations."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

import click
from flask.cli import AppGroup

from app.cli.errors import report_errors
from app.operations.directory.lookups import get_root_organization
from app.operations.maintenance.transfer import export_organization, import_organization
from app.operations.organizations import organizations
from app.operations.store.transactions import MAX_LIMIT, iterate_pages
from app.rules.actor import Actor

organizations_commands = AppGroup("organizations", help="Organizations, and their export and import.")
_organization = click.argument("organization")
_passphrase = click.option(
    "--passphrase-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file whose first line is the passphrase (default: prompt).",
)


@organizations_commands.command("list")
@click.option("--search", help="The beginning of an ID, or part of a name.")
@click.option("--status", type=click.Choice(organizations.LISTED_STATUSES))
@report_errors
def list_command(search: str | None, status: str | None) -> None:
    """List organizations: ID, status, name."""
    operator = _operator()
    for record in iterate_pages(
        lambda after: organizations.list_organizations(
            operator, limit=MAX_LIMIT, after=after, query=search, status=status
        )
    ):
        click.echo(f"{record.slug:40} {record.status:9} {record.name}")


@organizations_commands.command("suspend")
@_organization
@report_errors
def suspend_command(organization: str) -> None:
    """Disable sign-in, tokens and API of ORGANIZATION at once. No data is deleted."""
    organizations.update_organization(_operator(), organization, {"status": "suspended"})


@organizations_commands.command("resume")
@_organization
@report_errors
def resume_command(organization: str) -> None:
    """Enable a suspended ORGANIZATION, or restore a deleted one."""
    organizations.restore_organization(_operator(), organization)


@organizations_commands.command("delete")
@_organization
@click.confirmation_option(prompt="It stops working at once and is purged after 30 days. Delete it?")
@report_errors
def delete_command(organization: str) -> None:
    """Delete ORGANIZATION: it stops working at once, and its data is purged after 30 days."""
    record = organizations.delete_organization(_operator(), organization)
    click.echo(
        f"{record.slug} will be purged at {record.purge_at:%Y-%m-%d %H:%M} UTC. Until then it can be resumed."
    )


@organizations_commands.command("export")
@_organization
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@_passphrase
@report_errors
def export_command(organization: str, file: Path, passphrase_file: Path | None) -> None:
    """Export ORGANIZATION to FILE, encrypted with a passphrase: users, clients, secrets, keys, grants, audit log.

    To move it, suspend it first, because later changes are not in the file.
    """
    passphrase = _secret(passphrase_file, confirm=True)
    # An existing file of this name may be the only copy until the new one is complete.
    unfinished = file.with_name(f"{file.name}.part")
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            exported = export_organization(
                _operator(), organization, stream, passphrase, progress=_print_progress
            )
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise click.ClickException(f"{file} cannot be written: {error.strerror}") from error
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    unfinished.replace(file)
    click.echo(
        f"{exported.slug} as of {exported.at:%Y-%m-%d %H:%M:%S} UTC: {sum(exported.rows.values())} rows"
    )


@organizations_commands.command("import")
@click.argument("file", type=click.File("rb"))
@_passphrase
@report_errors
def import_command(file: BinaryIO, passphrase_file: Path | None) -> None:
    """Import the organization in FILE with its ID, clients, secrets and keys."""
    imported = import_organization(_operator(), file, _secret(passphrase_file), progress=_print_progress)
    click.echo(f"{imported.slug} imported, {imported.status}: {sum(imported.rows.values())} rows")


def _operator() -> Actor:
    return Actor.system(get_root_organization().id, "command line")


def _secret(file: Path | None, *, confirm: bool = False) -> str:
    if file is not None:
        return file.read_text().split("\n", 1)[0]
    passphrase: str = click.prompt("Passphrase", hide_input=True, confirmation_prompt=confirm, err=True)
    return passphrase


def _print_progress(table: str, rows: int) -> None:
    if rows:
        click.echo(f"  {table}: {rows}", err=True)
