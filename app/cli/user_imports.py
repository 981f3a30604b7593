"""``flask --app wsgi users import``: import users from a file, with a progress bar and a report."""

from __future__ import annotations

import hashlib
import sys
import time
from pathlib import Path

import click

from app.cli.errors import report_errors
from app.cli.users import users_commands
from app.operations.directory.lookups import get_organization_by_slug
from app.operations.users import import_records, import_runner, import_uploads
from app.operations.users import import_uploads as uploads
from app.operations.users.import_records import ImportRecord
from app.rules.actor import Actor
from app.rules.users.user_import import FORMATS, ON_EXISTING, format_of_name

__all__ = ["users_commands"]

_BAR = 30
_LINE_SECONDS = 5.0


@users_commands.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--organization", required=True, help="ID of the organization.")
@click.option("--format", "file_format", type=click.Choice(FORMATS), help="Default: from the file name.")
@click.option("--on-existing", type=click.Choice(ON_EXISTING), default="skip", show_default=True)
@click.option("--dry-run", is_flag=True, help="Check the file and print what would happen.")
@click.option("--resume", is_flag=True, help="Continue an interrupted import of this file.")
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), help="Default: FILE.refused.csv")
@report_errors
def import_command(
    file: Path,
    organization: str,
    file_format: str | None,
    on_existing: str,
    dry_run: bool,
    resume: bool,
    report: Path | None,
) -> None:
    """Import the users in FILE: CSV, a JSON array or JSON lines. Rejected rows are written to a report.

    Exit status 1 when rows were rejected.
    """
    actor = Actor.system(get_organization_by_slug(organization).id, "command line")
    begun = import_uploads.find_interrupted(actor, _digest(file))
    if begun is not None and not resume:
        raise click.ClickException(
            f"An import of this file was interrupted after {begun.done} of {begun.total} rows. Add --resume."
        )
    if begun is None:
        begun = _upload(actor, file, file_format or format_of_name(file.name), on_existing, dry_run)
    meter = _ProgressBar()
    ended = import_runner.run_import(actor, begun.public_id, progress=meter.show)
    meter.end()
    _print_result(ended)
    if ended.refused:
        path = report or file.with_name(f"{file.name}.refused.csv")
        with path.open("w", encoding="utf-8", newline="") as out:
            out.writelines(import_records.refusal_report(actor, ended.public_id))
        click.echo(f"Rejected rows, with the reasons: {path}")
    if ended.refused or ended.failure:
        raise SystemExit(1)


def _upload(actor: Actor, file: Path, file_format: str, on_existing: str, dry_run: bool) -> ImportRecord:
    with file.open("rb") as stream:
        upload = uploads.receive_upload(
            actor,
            stream.read,
            file_format=file_format,
            name=file.name[:200],
            on_existing=on_existing,
            is_foreground=True,
        )
    return uploads.confirm_upload(actor, upload, is_dry_run=dry_run)


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
