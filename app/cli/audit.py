"""``flask --app wsgi audit``: verify the audit logs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TextIO

import click

from app.cli.operator import OperatorGroup, operator
from app.operations.audit.chain_verification import matches_checkpoint, verify_audit_log
from app.operations.directory.lookups import get_organization_by_slug
from app.operations.organizations.organizations import list_organizations
from app.operations.store.rows import iterate_pages
from app.rules.actor import Actor
from app.rules.audit.events import AUDIT_LOGGER, CHECKPOINT_PATTERN

# Where log shippers put the line of a program: Docker, Fluent Bit, Vector, and journald.
_SHIPPED_LINE = frozenset({"log", "message", "msg", "MESSAGE"})
audit_commands = OperatorGroup("audit", help="The audit logs and their hash chains.")


@audit_commands.command("verify")
@click.option("--organization", help="ID of the organization (default: all).")
@click.option(
    "--checkpoints",
    type=click.File(errors="replace"),
    help="A server log stored elsewhere; its checkpoints are compared with the chains.",
)
def verify_command(organization: str | None, checkpoints: TextIO | None) -> None:
    """Verify audit logs against their hash chains.

    Exit status 0: no changes. 1: an event was changed, removed, added or moved.
    """
    named = get_organization_by_slug(organization) if organization else None
    chosen = [(named.id, named.slug)] if named else _every()
    broken = sum(_verify(organization_id, slug) for organization_id, slug in chosen)
    if checkpoints is not None:
        broken += _compare_checkpoints(checkpoints, named.id if named else None)
    if broken:
        raise SystemExit(1)


def _verify(organization_id: str, slug: str) -> int:
    actor = Actor.system(organization_id, "command line")
    after: int | None = 0
    checked = problems = 0
    while after is not None:
        found = verify_audit_log(actor, after=after)
        for problem in found.problems:
            where = "" if problem.position is None else f" At position {problem.position}."
            click.echo(f"BROKEN  {slug}: {problem.message}{where} {problem.event_id or ''}".rstrip())
        checked, problems = checked + found.checked, problems + len(found.problems)
        after = found.next_position
    if not problems:
        click.echo(
            f"ok      {slug}: {checked} events, {found.removed} removed by retention, {found.pending} not yet sealed; "
            f"intact up to event {found.length}, compare it with your export or --checkpoints"
        )
    return problems


def _compare_checkpoints(lines: TextIO, organization_id: str | None) -> int:
    count = wrong = 0
    for line in lines:
        for found in filter(None, (re.fullmatch(CHECKPOINT_PATTERN, text) for text in _messages(line))):
            here, position, mac = found.groups()
            if organization_id not in {None, here}:
                continue
            count += 1
            if not matches_checkpoint(Actor.system(here, "command line"), int(position), bytes.fromhex(mac)):
                wrong += 1
                click.echo(f"BROKEN  {here}: the chain differs from the checkpoint at position {position}")
    click.echo(f"{count} checkpoints, {wrong} do not match", err=True)
    return wrong


def _messages(line: str) -> Iterator[str]:
    """Yield what the audit log's logger wrote in a line, which a log shipper may have put into JSON of its own.

    Other loggers, and other fields, hold what anyone can choose, such as paths of requests.
    """
    start = line.find("{")
    try:
        record = json.loads(line[start:]) if start >= 0 else None
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        yield line.strip()
    elif record.get("logger") == AUDIT_LOGGER:
        yield str(record.get("message"))
    elif "logger" not in record:
        for name in _SHIPPED_LINE & record.keys():
            yield from _messages(str(record[name]))


def _every() -> Iterator[tuple[str, str]]:
    """Yield (key, slug) of every organization, including deleted ones until they are purged."""
    for filters in ({}, {"status": "deleted"}):
        for record in iterate_pages(list_organizations, operator(), filters=filters):
            yield record.id, record.slug
