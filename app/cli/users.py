"""``flask --app wsgi users``: list, create, disable, enable, delete and import users, and give them roles."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click

from app.cli.operator import OperatorGroup, operator
from app.cli.private_files import open_private
from app.operations.organizations.administrators import add_administrator
from app.operations.store.rows import iterate_pages
from app.operations.users import import_records, import_runner, import_uploads, user_changes, users
from app.operations.users.deletion import delete_user
from app.operations.users.factor_resets import reset_user_factors
from app.operations.users.import_records import ImportRecord
from app.operations.users.users import UserRecord, find_user_record
from app.rules.actor import Actor
from app.rules.directory.permissions import ADMIN
from app.rules.errors import Conflict
from app.rules.identifiers import public_id
from app.rules.users.import_files import FORMATS, format_of_name
from app.rules.users.profile import STATUSES
from app.rules.users.user_import import ON_EXISTING

users_commands = OperatorGroup("users", help="Users of an organization.")
_organization = click.option("--organization", required=True, help="ID of the organization.")
_user = click.argument("user")
_BAR = 30
_LINE_SECONDS = 5.0


@users_commands.command("list")
@_organization
@click.option("--search", help="Part of an email or a name.")
@click.option("--status", type=click.Choice(STATUSES))
def list_command(organization: str, search: str | None, status: str | None) -> None:
    """List users by email: ID, status, email, roles."""
    filters = {"status": status} if status else {}
    for record in iterate_pages(users.list_users, operator(organization), query=search, filters=filters):
        click.echo(_line(record))


@users_commands.command("create")
@_organization
@click.argument("email")
@click.option("--name", default="")
def create_command(organization: str, email: str, name: str) -> None:
    """Create a user, and send or print the link to choose a password, if the organization allows passwords."""
    actor = operator(organization)
    record = user_changes.add_user(actor, {"email": email, "name": name})
    click.echo(_line(record))
    try:
        made = user_changes.issue_user_reset_link(actor, record.user.public_id)
    except Conflict as error:
        click.echo(f"The user gets no link. {error.description}", err=True)
    else:
        click.echo(made.link or f"The link was sent to {record.user.email}.")


@users_commands.command("give-role")
@_organization
@_user
@click.argument("role", default=ADMIN)
def give_role_command(organization: str, user: str, role: str) -> None:
    """Give USER (email or usr_…) the ROLE (admin), or invite them if there is no such user.

    For example after the last administrator has left.
    """
    field = "user_id" if user.startswith("usr_") else "email"
    added = add_administrator(operator(organization), organization, role=role, **{field: user})
    if added.admin is not None:
        click.echo(f"{public_id('usr', added.admin.user_id)} {added.admin.email} {added.admin.role}")
        if added.admin.status == "disabled":
            click.echo("The user is disabled, and can sign in only after users enable.", err=True)
    else:
        click.echo(added.link or f"The invitation was sent to {user}.")


@users_commands.command("reset-password")
@_organization
@_user
def reset_password_command(organization: str, user: str) -> None:
    """Send or print the link with which USER (email or usr_…) chooses a new password."""
    actor = operator(organization)
    found = find_user_record(actor, user)
    made = user_changes.issue_user_reset_link(actor, found.user.public_id)
    click.echo(made.link or f"The link was sent to {found.user.email}.")


@users_commands.command("disable")
@_organization
@_user
def disable_command(organization: str, user: str) -> None:
    """Disable USER (email or usr_…): end all sessions and tokens, and reject further sign-ins."""
    _set_status(organization, user, "disabled")


@users_commands.command("enable")
@_organization
@_user
def enable_command(organization: str, user: str) -> None:
    """Enable USER (email or usr_…) again."""
    _set_status(organization, user, "active")


@users_commands.command("reset-second-factors")
@_organization
@_user
def reset_second_factors_command(organization: str, user: str) -> None:
    """Remove all second factors of USER (email or usr_…), and end all sessions and tokens."""
    actor = operator(organization)
    found = find_user_record(actor, user)
    reset = reset_user_factors(actor, found.user.public_id)
    click.echo(f"{found.user.public_id} {','.join(reset.methods) or 'none'}")


@users_commands.command("delete")
@_organization
@_user
@click.confirmation_option(prompt="Their data is erased. It cannot be undone. Delete the user?")
def delete_command(organization: str, user: str) -> None:
    """Delete USER (email or usr_…): end all sessions and tokens, and erase their data."""
    actor = operator(organization)
    found = find_user_record(actor, user)
    ended = delete_user(actor, found.user.public_id)
    click.echo(
        f"{found.user.public_id} deleted, with sessions: {ended.sessions}, grants: {ended.grants}, "
        f"consents: {ended.consents}, roles: {ended.roles}"
    )


def _set_status(organization: str, user: str, status: str) -> None:
    actor = operator(organization)
    found = find_user_record(actor, user)
    updated = user_changes.update_user(actor, found.user.public_id, {"status": status})
    click.echo(_line(updated.record))


def _line(record: UserRecord) -> str:
    user = record.user
    return f"{user.public_id} {user.status} {user.email} {','.join(record.roles)}".rstrip()


@users_commands.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@_organization
@click.option("--format", "file_format", type=click.Choice(FORMATS), help="Default: from the file name.")
@click.option(
    "--on-existing", type=click.Choice(ON_EXISTING), help="Default: skip, or as the interrupted import."
)
@click.option("--dry-run", is_flag=True, help="Check the file and print what would happen.")
@click.option("--resume", is_flag=True, help="Continue an interrupted import, or dry run, of this file.")
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), help="Default: FILE.refused.csv")
def import_command(
    file: Path,
    organization: str,
    file_format: str | None,
    on_existing: str | None,
    dry_run: bool,
    resume: bool,
    report: Path | None,
) -> None:
    """Import the users in FILE: CSV, a JSON array or JSON lines. Rejected rows are written to a report.

    Exit status 1 when rows were rejected.
    """
    path = report or file.with_name(f"{file.name}.refused.csv")
    if path.exists() and path.samefile(file):
        raise click.BadParameter(
            "It would replace the imported file. Use another one.", param_hint="--report"
        )
    actor = operator(organization)
    digest = _digest(file)
    begun = import_uploads.find_interrupted(actor, digest, is_dry_run=dry_run)
    if begun is not None and not resume:
        kind = "A dry run" if dry_run else "An import"
        raise click.ClickException(
            f"{kind} of this file was interrupted after {begun.done} of {begun.total} rows. Add --resume."
        )
    if begun is None and resume and import_uploads.find_interrupted(actor, digest, is_dry_run=not dry_run):
        raise click.ClickException(
            "An import of this file was interrupted, and no dry run. Leave out --dry-run to continue it."
            if dry_run
            else "A dry run of this file was interrupted, and no import. Add --dry-run, or leave out --resume."
        )
    if begun is not None and on_existing not in {None, begun.on_existing}:
        raise click.ClickException(
            f"The interrupted import began with --on-existing {begun.on_existing}, and goes on with it. Leave out the "
            "option."
        )
    if begun is None:
        chosen = on_existing or ON_EXISTING[0]
        begun = _upload(actor, file, file_format or format_of_name(file.name), chosen, dry_run)
    meter = _ProgressBar()
    ended = import_runner.run_import(actor, begun.public_id, progress=meter.show)
    meter.end()
    _print_result(ended)
    if ended.refused:
        _write_report(path, import_records.refusal_report(actor, ended.public_id))
    if ended.refused or ended.failure:
        raise SystemExit(1)


def _write_report(path: Path, lines: Iterator[str]) -> None:
    try:
        with open(path, "w", encoding="utf-8", newline="", opener=open_private) as out:
            out.writelines(lines)
    except OSError as error:
        raise click.ClickException(
            f"{path} cannot be written: {error.strerror}. The portal has the rejected rows for a week: Users, Import."
        ) from error
    click.echo(f"Rejected rows, with the reasons: {path}")


def _upload(actor: Actor, file: Path, file_format: str, on_existing: str, dry_run: bool) -> ImportRecord:
    with file.open("rb") as stream:
        upload = import_uploads.receive_upload(
            actor,
            stream.read,
            file_format=file_format,
            name=file.name[:200],
            on_existing=on_existing,
            is_foreground=True,
        )
    return import_uploads.confirm_upload(actor, upload, is_dry_run=dry_run)


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _print_result(ended: ImportRecord) -> None:
    if ended.status == "checked":
        click.echo("Checked. Nothing was changed. The import would have")
    click.echo(
        f"created {ended.created}, updated {ended.updated}, skipped {ended.skipped}, rejected {ended.refused}"
        f" of {ended.total} rows"
    )
    if ended.failure:
        click.echo(f"The import stopped: {ended.failure}", err=True)


class _ProgressBar:
    """Progress on standard error: a bar on a terminal, otherwise a line every few seconds."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._begun_at: int | None = None
        self._shown_at = 0.0
        self._is_terminal = sys.stderr.isatty()

    def show(self, record: ImportRecord) -> None:
        """Show the progress of the import."""
        now = time.monotonic()
        if self._begun_at is None:
            self._begun_at = record.done
        is_due = self._is_terminal or now - self._shown_at > _LINE_SECONDS or record.done == record.total
        if not is_due:
            return
        self._shown_at = now
        speed = (record.done - self._begun_at) / max(now - self._started, 0.001)
        left = int((record.total - record.done) / speed) if speed else 0
        line = f"{record.percent:3} %  {record.done} of {record.total} rows  {speed:.0f} rows/s"
        line += f"  {left // 60}:{left % 60:02} left" if speed else ""
        if self._is_terminal:
            full = record.percent * _BAR // 100
            line = f"\r[{'#' * full}{'.' * (_BAR - full)}] {line}\x1b[K"
        click.echo(line, err=True, nl=not self._is_terminal)

    def end(self) -> None:
        """Move the cursor below the progress bar."""
        if self._is_terminal:
            click.echo("", err=True)
