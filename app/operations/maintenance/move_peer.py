"""The other cell of a move: the receiver there, and the rows that are copied to it and compared with it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from typing import IO, Any

from msgspec import Struct
from sqlalchemy import Table, select

from app.config import command_line, current
from app.database import context, engines
from app.extensions import db
from app.models.audit import OutboxMessage
from app.models.base import Base
from app.models.organization import ACTIVE, PURGED, Organization
from app.operations.audit.chain_verification import verify_audit_log
from app.operations.maintenance import transfer
from app.operations.maintenance.archive import row_to_record
from app.operations.maintenance.purge_rules import PURGE_RULES, organization_tables
from app.operations.store import clock
from app.operations.store.transactions import read
from app.rules.actor import Actor
from app.rules.errors import Conflict, DomainError, NotFound

OUTBOX = Base.metadata.tables[OutboxMessage.__tablename__]
BATCH = 500
MAX_ROUNDS = 8
# Workers write these late and in batches. What they counted in the last seconds may be lost.
STATISTICS = frozenset(
    {"usage_counters", "sampled_requests", "failed_requests", "credential_uses", "request_counts"}
)
_EXPIRING = frozenset(rule.table for rule in PURGE_RULES)
_MAX_CLOCK_DIFFERENCE = timedelta(seconds=2)
Progress = Callable[[str], None]


class MoveFailed(DomainError):
    """The receiver refused, or does not answer any more."""

    code = "move_failed"


class Difference(Struct, frozen=True):
    """The primary keys of one table's rows, in JSON: of those in one cell only, and of those that differ."""

    only_here: tuple[str, ...]
    only_there: tuple[str, ...]
    different: tuple[str, ...]


class Peer:
    """The receiver, at the other end of two streams."""

    def __init__(self, reader: IO[str], writer: IO[str]) -> None:
        self._reader, self._writer = reader, writer

    def call(self, command: str, **arguments: Any) -> Any:
        """Send a command and return the receiver's result. Raises MoveFailed."""
        try:
            self._writer.write(json.dumps({"command": command, **arguments}) + "\n")
            self._writer.flush()
            answer = json.loads(self._reader.readline())
        except (OSError, ValueError) as error:
            raise MoveFailed("The receiver does not answer. Its messages are above.") from error
        if not isinstance(answer, dict) or not answer.keys() & {"error", "result"}:
            raise MoveFailed("This is not the answer of a receiver. Check --via.")
        if "error" in answer:
            raise MoveFailed(f"The receiver: {answer['error']}")
        return answer["result"]


def require_intact_log(actor: Actor, organization_id: str) -> None:
    """Raise Conflict if the chain of the organization's audit log is damaged."""
    inside = actor.acting_in(organization_id, actor.permissions)
    after: int | None = 0
    while after is not None:
        verified = verify_audit_log(inside, after=after)
        if verified.problems:
            raise Conflict(f"The audit log is damaged. Verify it with: {command_line('audit verify')}")
        after = verified.next_position


def begin(peer: Peer, organization: Any, *, is_returning: bool = False) -> str:
    """Let the receiver check that it can take the organization. Return the organization's status there.

    A move that was decided goes on only in the tombstone that it was prepared in. ``is_returning`` allows one that was
    withdrawn.

    Raises MoveFailed and, if times here and there cannot be compared, Conflict.
    """
    # The first answer takes as long as the receiver starts.
    peer.call("clock")
    before = clock.now()
    there = datetime.fromisoformat(peer.call("clock"))
    if not before - _MAX_CLOCK_DIFFERENCE < there < clock.now() + _MAX_CLOCK_DIFFERENCE:
        raise Conflict("The clocks of the two databases differ by more than two seconds. Synchronize them.")
    names = ("id", "slug", "name", "created_by")
    status: str = peer.call(
        "begin",
        organization={name: getattr(organization, name) for name in names}
        | {"created_at": organization.created_at.isoformat()},
        tables={table.name: sorted(table.columns.keys()) for table in compared_tables()},
        base_url=current().base_url,
        decided=organization.moving_until.isoformat() if organization.moved_to is not None else None,
        is_returning=is_returning,
    )
    return status


def abandon(peer: Peer) -> None:
    """Let the receiver delete what it has, as far as it can be reached."""
    try:
        peer.call("abandon")
    except MoveFailed:
        return


def compared_tables() -> list[Table]:
    """List the tables that are copied and compared, parents before children.

    Messages of the outbox follow in the end, because none may be due in both cells.
    """
    return [table for table in reversed(organization_tables()) if table.name != OUTBOX.name]


@read
def find_organization(slug: str) -> Any:
    table = Organization.__table__
    row = db.session.execute(select(table).where(table.c.slug == slug)).first()
    if row is None or (row.status == PURGED and row.moved_to is None):
        raise NotFound("There is no such organization.")
    return row


def list_digests(organization_id: str, table: Table) -> dict[str, str]:
    """Return a digest of each row of the organization, by its primary key in JSON."""
    return {
        key: hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:32]
        for key, record in _records(table, organization_id)
    }


def synchronize(peer: Peer, organization_id: str) -> tuple[dict[str, int], dict[str, dict[str, str]]]:
    """Make the target's rows equal to the source's.

    Return how many rows differed before, and the digests of the source's, both by table.
    """
    ours: dict[str, dict[str, str]] = {}
    missing: dict[str, set[str]] = {}
    gone: dict[str, list[str]] = {}
    for table in compared_tables():
        theirs = peer.call("digests", table=table.name)
        found = ours[table.name] = list_digests(organization_id, table)
        missing[table.name] = {key for key, digest in found.items() if theirs.get(key) != digest}
        gone[table.name] = [key for key in theirs if key not in found]
    for table in reversed(compared_tables()):
        for keys in _in_batches(gone[table.name]):
            peer.call("delete", table=table.name, keys=keys)
    for table in compared_tables():
        wanted = missing[table.name]
        records = (record for key, record in _records(table, organization_id) if key in wanted)
        for batch in _in_batches(records if wanted else ()):
            peer.call("put", table=table.name, records=batch)
    differing = {name: len(missing[name]) + len(gone[name]) for name in ours if missing[name] or gone[name]}
    return differing, ours


def compare_rows(peer: Peer, organization: Any) -> dict[str, Difference]:
    """Return the differences by table, without those that a move allows."""
    found = {}
    for table in compared_tables():
        if table.name in STATISTICS:
            continue
        theirs = peer.call("digests", table=table.name)
        ours = list_digests(organization.id, table)
        both = ours.keys() & theirs.keys()
        may_lack = table in _EXPIRING
        difference = Difference(
            () if may_lack else tuple(sorted(ours.keys() - both)),
            () if may_lack else tuple(sorted(theirs.keys() - both)),
            tuple(sorted(key for key in both if ours[key] != theirs[key])),
        )
        if any((difference.only_here, difference.only_there, difference.different)):
            found[table.name] = difference
    return found


def _in_batches(items: Iterable[Any]) -> Iterator[list[Any]]:
    batch: list[Any] = []
    for item in items:
        batch.append(item)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _records(table: Table, organization_id: str) -> Iterator[tuple[str, list[Any]]]:
    """Iterate over (primary key, row), both as JSON types; the key as text."""
    names = [column.name for column in table.columns]
    positions = [names.index(column.name) for column in table.primary_key.columns]
    # One statement, so one moment of the database. The pause and further comparisons do the rest.
    with context(), engines()[0].connect() as plain:
        connection = plain.execution_options(read_only=True, stream_results=True)
        for row in transfer.rows_of(connection, table, organization_id):
            record = row_to_record(row, table)
            yield json.dumps([record[position] for position in positions]), record


def describe(organization_id: str) -> dict[str, Any]:
    with transfer.snapshot() as connection:
        return transfer.describe_organization(connection, organization_id) | {"status": ACTIVE}


def activate(peer: Peer, organization: Any) -> None:
    with transfer.snapshot() as connection:
        rows = list(transfer.rows_of(connection, OUTBOX, organization.id))
    messages = [row_to_record(row, OUTBOX) for row in rows if row.done_at is None]
    at = clock.now().isoformat()
    peer.call(
        "activate",
        organization=describe(organization.id),
        move=organization.moving_until.isoformat(),
        messages=messages,
        after=at,
    )
