"""``flask --app wsgi organizations``: list, suspend, delete, export, import, move and recover organizations."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import click

from app.cli.operator import OperatorGroup, operator
from app.cli.private_files import replaced_privately
from app.cli.restore import print_report, restore_options
from app.operations.maintenance import decided_moves, move, move_peer
from app.operations.maintenance.lost_cell import recover_organization
from app.operations.maintenance.receive import receive_organization
from app.operations.maintenance.transfer import export_organization, import_organization
from app.operations.organizations import organizations
from app.operations.store.rows import iterate_pages

organizations_commands = OperatorGroup(
    "organizations", help="Organizations, their transfer and moves between cells."
)
_organization = click.argument("organization")
_MAX_PRINTED_KEYS = 20


def _cell_name(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    # It is stored, written to maps of proxies and given to ssh.
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", value) is None:
        raise click.BadParameter("Use up to 64 letters, digits, dots, hyphens and underscores.")
    return value


_passphrase = click.option(
    "--passphrase-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file whose first line is the passphrase (default: prompt).",
)


@organizations_commands.command("list")
@click.option("--search", help="The beginning of an ID, or part of a name.")
@click.option("--status", type=click.Choice(organizations.LISTED_STATUSES))
def list_command(search: str | None, status: str | None) -> None:
    """List organizations: ID, status, name."""
    list_organizations = organizations.list_organizations
    filters = {"status": status} if status else {}
    for record in iterate_pages(list_organizations, operator(), query=search, filters=filters):
        click.echo(f"{record.slug:40} {record.status:9} {record.name}")


@organizations_commands.command("suspend")
@_organization
def suspend_command(organization: str) -> None:
    """Disable sign-in, tokens and API of ORGANIZATION at once. No data is deleted."""
    organizations.update_organization(operator(), organization, {"status": "suspended"})


@organizations_commands.command("resume")
@_organization
def resume_command(organization: str) -> None:
    """Enable a suspended ORGANIZATION, or restore a deleted one."""
    organizations.restore_organization(operator(), organization)


@organizations_commands.command("delete")
@_organization
@click.confirmation_option(prompt="It stops working at once and is purged after 30 days. Delete it?")
def delete_command(organization: str) -> None:
    """Delete ORGANIZATION: it stops working at once, and its data is purged after 30 days."""
    record = organizations.delete_organization(operator(), organization)
    click.echo(
        f"{record.slug} will be purged at {record.purge_at:%Y-%m-%d %H:%M} UTC. Until then it can be resumed."
    )


@organizations_commands.command("export")
@_organization
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@_passphrase
def export_command(organization: str, file: Path, passphrase_file: Path | None) -> None:
    """Export ORGANIZATION to FILE, encrypted with a passphrase: users, clients, secrets, keys, grants, audit log.

    To move it, suspend it first, because later changes are not in the file.
    """
    passphrase = _secret(passphrase_file, confirm=True)
    try:
        with replaced_privately(file) as stream:
            exported = export_organization(
                operator(), organization, stream, passphrase, progress=_print_progress
            )
    except OSError as error:
        raise click.ClickException(f"{file} cannot be written: {error.strerror}") from error
    click.echo(
        f"{exported.slug} as of {exported.at:%Y-%m-%d %H:%M:%S} UTC: {sum(exported.rows.values())} rows"
    )


@organizations_commands.command("import")
@click.argument("file", type=click.File("rb"))
@_passphrase
def import_command(file: BinaryIO, passphrase_file: Path | None) -> None:
    """Import the organization in FILE with its ID, clients, secrets and keys."""
    imported = import_organization(operator(), file, _secret(passphrase_file), progress=_print_progress)
    click.echo(f"{imported.slug} imported, {imported.status}: {sum(imported.rows.values())} rows")


@organizations_commands.command("map")
@click.option("--cell", required=True, callback=_cell_name, help="Name of this cell, as the proxy calls it.")
def map_command(cell: str) -> None:
    """Print which organizations this cell serves, for a map of HAProxy or nginx: two lines for each.

    One has its ID, which is in paths and issuers, the other its routing key, which is in tokens and client IDs.
    """
    for slug, routing_key in move.list_served():
        click.echo(f"{slug} {cell}\n{routing_key} {cell}")


@organizations_commands.command("move")
@_organization
@click.option("--to", "cell", required=True, callback=_cell_name, help="Name of the target cell.")
@click.option(
    "--via",
    help="Command that starts `organizations receive` there (default: ssh CELL gatehouse organizations receive).",
)
@click.option(
    "--max-pause",
    type=click.IntRange(15, 600),
    default=move.MAX_PAUSE_SECONDS,
    show_default=True,
    help="Seconds after which the move is given up, and ORGANIZATION served here again.",
)
@click.option(
    "--check", "step", flag_value="check", help="List the rows in which a decided move differs there."
)
@click.option(
    "--finish",
    "step",
    flag_value="finish",
    help="Let the target of a decided move serve, with the rows from here.",
)
@click.option(
    "--return",
    "step",
    flag_value="return",
    help="Serve it here again, if the target of a decided move has never served it.",
)
def move_command(organization: str, cell: str, via: str | None, max_pause: int, step: str | None) -> None:
    """Move ORGANIZATION to another cell while clients use it. Run it again if it was interrupted.

    Its requests get 503 for some seconds. Nothing issued before becomes invalid, and nothing revoked valid. The other
    steps are for a move that was decided and cannot be repeated, because rows differ.
    """
    with _connected(cell, via) as peer:
        if step == "check":
            _print_comparison(cell, decided_moves.compare_move(operator(), organization, cell, peer))
            return
        if step == "return":
            decided_moves.take_back(operator(), organization, cell, peer)
            click.echo(f"{organization} is served here again.")
            return
        if step == "finish":
            decided_moves.finish_move(operator(), organization, cell, peer, progress=_print_line)
            click.echo(f"{organization} is served by {cell}.")
            return
        result = move.move_organization(
            operator(), organization, cell, peer, max_pause=max_pause, progress=_print_line
        )
    click.echo(f"{organization} is served by {cell}. It was paused for {result.paused_seconds:.1f} seconds.")
    if result.late_rows:
        raise click.ClickException(
            f"After the move was decided, this cell still wrote {result.late_rows}. A process of it was suspended for "
            "longer than the pause: list these rows with --check, and make the changes there."
        )


@contextmanager
def _connected(cell: str, via: str | None) -> Iterator[move_peer.Peer]:
    with _start_receiver(cell, via) as target:
        if target.stdin is None or target.stdout is None:
            raise click.ClickException("The command for the target cannot be started.")
        try:
            yield move_peer.Peer(target.stdout, target.stdin)
        finally:
            # What was not sent to a receiver that has ended is written once more, and the error is known already.
            with suppress(BrokenPipeError):
                target.stdin.close()


def _start_receiver(cell: str, via: str | None) -> subprocess.Popen[str]:
    try:
        command = ["ssh", cell, "gatehouse", "organizations", "receive"] if via is None else shlex.split(via)
    except ValueError as error:
        raise click.ClickException(f"--via is not a command: {error}.") from error
    if not command:
        raise click.ClickException("--via is empty. Enter the command that starts the receiver.")
    try:
        # The operator's own command.
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603
    except OSError as error:
        raise click.ClickException(f"{command[0]} cannot be started: {error.strerror}") from error


def _print_comparison(cell: str, found: decided_moves.Comparison) -> None:
    click.echo(f"{cell} serves it." if found.is_served_there else f"{cell} does not serve it.")
    if not found.tables:
        click.echo("All rows are the same.")
    for name, difference in found.tables.items():
        for where, keys in (
            ("only here", difference.only_here),
            ("only there", difference.only_there),
            ("different", difference.different),
        ):
            for key in keys[:_MAX_PRINTED_KEYS]:
                click.echo(f"{name} {where}: {key}")
            if len(keys) > _MAX_PRINTED_KEYS:
                click.echo(f"{name} {where}: {len(keys) - _MAX_PRINTED_KEYS} more")


@organizations_commands.command("recover")
@_organization
@click.option(
    "--lost", "cell", required=True, callback=_cell_name, help="Name of the cell that is lost for good."
)
@restore_options
@click.confirmation_option(
    prompt="If that cell ever serves again, both cells serve the organization. Is its database lost for good?"
)
def recover_command(
    organization: str, cell: str, exports: tuple[Path, ...], secrets: str, passwords: str
) -> None:
    """Serve ORGANIZATION here again, with the rows from before it moved to a cell that is lost for good.

    Like restoring a backup from the time of the move. Invalid: tokens, sessions, codes, pending requests,
    registrations, invitations, links, tokens of registrations and recovery codes from before. If the cell has a backup,
    restore that one instead.

    Exit status 1: done, but something of an export could not be ended again.
    """
    with ExitStack() as stack:
        files = [stack.enter_context(path.open(encoding="utf-8")) for path in exports]
        report = recover_organization(
            operator(),
            organization,
            cell,
            files,
            block_secrets=secrets == "block",
            reset_passwords=passwords == "reset",
        )
    print_report(report)
    click.echo(
        f"{organization} is served here again. Everything issued before {report.at:%Y-%m-%dT%H:%M:%SZ} is invalid."
    )
    if report.failed:
        raise SystemExit(1)


@organizations_commands.command("receive")
def receive_command() -> None:
    """Receive an organization that `organizations move` sends to standard input. It is started by that command."""
    receive_organization(operator(), sys.stdin, sys.stdout)


def _secret(file: Path | None, *, confirm: bool = False) -> str:
    if file is not None:
        try:
            return file.read_text(encoding="utf-8").split("\n", 1)[0]
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise click.ClickException(f"{file} cannot be read: {reason}") from error
    passphrase: str = click.prompt("Passphrase", hide_input=True, confirmation_prompt=confirm, err=True)
    return passphrase


def _print_line(text: str) -> None:
    click.echo(f"  {text}", err=True)


def _print_progress(table: str, rows: int) -> None:
    if rows:
        click.echo(f"  {table}: {rows}", err=True)
