"""``flask --app wsgi maintenance``: restored backups, and the nodes of a database cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import click

from app.cli.operator import OperatorGroup, operator
from app.cli.private_files import replaced_privately
from app.config import command_line, current
from app.operations.maintenance.database_nodes import DatabaseNodes, parse_nodes, serve_agent
from app.operations.maintenance.doctor import has_pending_migrations
from app.operations.maintenance.restore import RestoreReport, confirm_secrets, invalidate_restored_state

maintenance_commands = OperatorGroup(
    "maintenance", help="Restored backups, and the nodes of a database cluster."
)


def restore_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say what of a backup can be trusted."""
    for option in (
        click.option(
            "--passwords",
            type=click.Choice(("reset", "keep")),
            default="reset",
            show_default=True,
            help="Let users choose new passwords, or accept those of the backup.",
        ),
        click.option(
            "--secrets",
            type=click.Choice(("block", "keep")),
            default="block",
            show_default=True,
            help="Block client secrets until they are confirmed, or let those of the backup work.",
        ),
        click.option(
            "--audit-export",
            "exports",
            multiple=True,
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="Audit events as JSON lines, exported after the backup; what ended since ends again. Can be repeated.",
        ),
    ):
        command = option(command)
    return command


@maintenance_commands.command("restore")
@restore_options
def restore_command(exports: tuple[Path, ...], secrets: str, passwords: str) -> None:
    """Make a restored database safe to serve. Run it once, before any server starts.

    Invalid in every organization: tokens, sessions, codes, pending requests, registrations, invitations, links, tokens
    of registrations and recovery codes from before. Keep secrets and passwords only if an audit export reaches to the
    end of the lost database, or if none was revoked or changed since the backup.

    Exit status 1: done, but something of an export could not be ended again.
    """
    if has_pending_migrations():
        raise click.ClickException(
            "The backup is from an earlier release. First run, with the account that owns the schema: "
            + command_line("db upgrade")
        )
    with ExitStack() as stack:
        files = [stack.enter_context(path.open(encoding="utf-8")) for path in exports]
        report = invalidate_restored_state(
            files, block_secrets=secrets == "block", reset_passwords=passwords == "reset"
        )
    print_report(report)
    for email, link in report.links.items():
        click.echo(f"New password of {email}: {link or 'the link was sent by email'}")
    _write_receipt(report)
    click.echo(
        f"Everything issued before {report.at:%Y-%m-%dT%H:%M:%SZ} is invalid in {report.organizations} organizations. "
        "The server can start.",
        err=True,
    )
    if report.failed:
        raise SystemExit(1)


@maintenance_commands.command("confirm-secrets")
@click.option("--organization", required=True, help="ID of the organization.")
@click.option("--client", help="Only the secrets of this client_id.")
def confirm_secrets_command(organization: str, client: str | None) -> None:
    """Let client secrets that a restore blocked work again."""
    actor = operator(organization)
    click.echo(f"{confirm_secrets(actor, client)} secrets confirmed.")


@maintenance_commands.command("database-nodes")
@click.argument("nodes", nargs=-1, required=True, metavar="NAME=HOST:PORT…")
@click.option("--listen", type=click.IntRange(1, 65535), help="Answer HAProxy's agent checks on this port.")
def database_nodes_command(nodes: tuple[str, ...], listen: int | None) -> None:
    """Tell which nodes of a database cluster can be written, with the account of DATABASE_URL.

    With --listen, answer the agent checks of HAProxy on the loopback interface until the process is stopped.

    Exit status 0: a node can be written. 1: none can.
    """
    if current().is_sqlite:
        raise click.ClickException("DATABASE_URL names a file. This command is for MySQL and MariaDB.")
    watched = DatabaseNodes(parse_nodes(nodes))
    watched.ask_all()
    if listen is not None:
        watched.follow()
        with serve_agent(watched, listen) as server:
            server.serve_forever()
    reasons = {name: watched.why_not(name) for name in watched.addresses}
    for name, (host, port) in watched.addresses.items():
        click.echo(f"{name} {host}:{port}: {reasons[name] or 'can be written'}")
    if None not in reasons.values():
        raise SystemExit(1)


def print_report(report: RestoreReport) -> None:
    """Print what ended again, what is not in the backup, what failed, and what an administrator has to review."""
    for title, lines in (
        ("Ended again", report.ended_again),
        ("Not in this backup, so there is nothing to end", report.not_in_backup),
        ("Not ended again", report.failed),
        ("Changed since the backup, review it", report.to_review),
    ):
        for line in lines:
            click.echo(f"{title}: {line}")


def _write_receipt(report: RestoreReport) -> None:
    """Write the receipt into the instance folder and print its path, or print it if that fails: the restore is done."""
    path, text = current().instance / f"restore-{report.epoch}.json", json.dumps(report.to_json(), indent=2)
    try:
        with replaced_privately(path) as file:
            file.write(text.encode())
    except OSError as error:
        click.echo(f"The receipt cannot be written to {path}: {error.strerror}. Keep this:\n{text}")
    else:
        click.echo(f"Receipt: {path}")
