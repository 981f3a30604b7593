"""Move an organization to another cell of the service while clients use it.

Cells are installations with the same base URL and databases of their own. The source drives the move and talks to a
receiver in the target, one JSON document a line. Rows are copied while the source serves. Then the source answers this
organization's requests with 503 for a few seconds, while what has changed meanwhile is copied and every row compared.

One conditional UPDATE at the source decides: before it the source is authoritative and goes on by itself when the pause
ends, whatever became of the move; after it the target is, which is then told to serve. So at no time do both serve.

The end of the pause names the move. The source keeps it and the target's tombstone has it too, so that a decided move
is finished or taken back only with the tombstone that it was prepared in.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import IO, Any

from sqlalchemy import ColumnElement, Table, delete, func, select, update

from app.config import current
from app.database import context, engines
from app.extensions import db
from app.fast_path import cache_invalidation
from app.models.audit import OutboxMessage
from app.models.base import Base
from app.models.organization import ACTIVE, DELETED, PURGED, SUSPENDED, Organization
from app.models.user import IN_PROGRESS, RoleAssignment, UserImport
from app.operations.audit.chain import seal_all_events
from app.operations.audit.chain_verification import verify_audit_log
from app.operations.maintenance import transfer
from app.operations.maintenance.archive import row_to_record
from app.operations.maintenance.purge_rules import PURGE_RULES, organization_tables
from app.operations.store import clock
from app.operations.store.transactions import count_changed, read, transaction
from app.rules.actor import Actor
from app.rules.errors import Conflict, DomainError, NotFound

MAX_PAUSE_SECONDS = 60
OUTBOX = Base.metadata.tables[OutboxMessage.__tablename__]
BATCH = 500
# How long a process may still use what it has cached, and finish what it began, beside the database's own timeout.
SETTLE_SECONDS = 4.0
_ROUNDS = 8
# Workers write these late and in batches. What they counted in the last seconds may be lost.
_STATISTICS = frozenset(
    {"usage_counters", "sampled_requests", "failed_requests", "credential_uses", "request_counts"}
)
_EXPIRING = frozenset(rule.table for rule in PURGE_RULES)
_RETENTION = timedelta(days=30)
# Messages of an organization that was given away: its rows are purged before, or it is taken back.
_NEVER = timedelta(days=36_500)
# The pause must still last for so long when the move is decided: processes read the database's clock at a distance.
_MARGIN = timedelta(seconds=3)
_MAX_CLOCK_DIFFERENCE = timedelta(seconds=2)
Progress = Callable[[str], None]


class MoveFailed(DomainError):
    """The receiver refused, or does not answer any more."""

    code = "move_failed"


@dataclass(frozen=True, slots=True)
class MoveResult:
    """The seconds of the pause, and rows that the source still wrote after the move was decided, by table."""

    paused_seconds: float
    late_rows: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Difference:
    """The primary keys of one table's rows, in JSON: of those in one cell only, and of those that differ."""

    only_here: tuple[str, ...]
    only_there: tuple[str, ...]
    different: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Whether the target serves a moved organization, and what differs between the cells, by table."""

    is_served_there: bool
    tables: Mapping[str, Difference]


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
        if "error" in answer:
            raise MoveFailed(f"The receiver: {answer['error']}")
        return answer["result"]


def move_organization(
    actor: Actor,
    slug: str,
    cell: str,
    peer: Peer,
    *,
    max_pause: int = MAX_PAUSE_SECONDS,
    progress: Progress = lambda text: None,
) -> MoveResult:
    """Move an organization to the cell of the receiver. Run it again after a failure: it continues or begins anew.

    ``max_pause`` limits the seconds in which its requests get 503. A move that needs more is given up, and the source
    goes on. Raises NotFound, Conflict and MoveFailed. Audit: ``organization.exported`` here, ``organization.imported``
    there.
    """
    actor.require("instance:write")
    organization = _find(slug)
    if organization.moved_to not in {None, cell}:
        raise Conflict(f"The organization has moved to {organization.moved_to} already.")
    if organization.moved_to == cell:
        progress("The move was decided before. The target is told to serve.")
        if begin(peer, organization) == PURGED:
            _require_equal_rows(peer, organization)
            _activate(peer, organization)
        _confirm(organization.id)
        return MoveResult(0.0, {})
    _require_movable(organization)
    require_intact_log(actor, organization.id)
    begin(peer, organization)
    transfer.record_export(actor, organization.id, slug)
    try:
        for _ in range(_ROUNDS):
            copied = sum(_synchronize(peer, organization.id)[0].values())
            progress(f"{copied} rows copied while it is served.")
            if copied <= BATCH:
                break
        return _switch(actor, organization, cell, peer, max_pause, progress)
    except DomainError:
        if _find(slug).moved_to is None:
            abandon(peer)
        raise


def compare_move(actor: Actor, slug: str, cell: str, peer: Peer) -> Comparison:
    """Compare the rows of an organization that was given to the cell with those there, and change nothing.

    Raises NotFound, Conflict if the move was not decided, and MoveFailed.
    """
    actor.require("instance:write")
    organization = find_decided(slug, cell)
    status = begin(peer, organization)
    return Comparison(status != PURGED, _compare(peer, organization))


def finish_move(
    actor: Actor, slug: str, cell: str, peer: Peer, *, progress: Progress = lambda text: None
) -> None:
    """Let the cell serve an organization that was given to it, with the rows that it has here now.

    For rows that were written here after the move was decided. The target has never served, so nothing is newer there.
    Raises NotFound, Conflict and MoveFailed.
    """
    actor.require("instance:write")
    organization = find_decided(slug, cell)
    if begin(peer, organization) == PURGED:
        require_own_rows(organization)
        seal_all_events(actor, organization.id)
        require_intact_log(actor, organization.id)
        for _ in range(_ROUNDS):
            differing, _digests = _synchronize(peer, organization.id)
            progress(f"{sum(differing.values())} rows copied.")
            if not set(differing) - _STATISTICS:
                break
        _require_equal_rows(peer, organization)
        _activate(peer, organization)
    _confirm(organization.id)


def take_back(actor: Actor, slug: str, cell: str, peer: Peer) -> None:
    """Serve an organization here again that was given to a cell which has never served it.

    The target first forbids itself to serve; only then is it served here. So this can be repeated after an
    interruption. Raises NotFound, Conflict and MoveFailed. Audit: ``organization.resumed``.
    """
    actor.require("instance:write")
    organization = find_decided(slug, cell)
    if begin(peer, organization, is_returning=True) != PURGED:
        raise Conflict(f"{cell} serves the organization. Move it back: run organizations move there.")
    require_own_rows(organization)
    peer.call("withdraw")
    serve_again(actor, organization)
    abandon(peer)


def _switch(
    actor: Actor, organization: Any, cell: str, peer: Peer, max_pause: int, progress: Progress
) -> MoveResult:
    began = time.monotonic()
    until = _pause(organization.id, max_pause)
    try:
        # Workers may serve from their caches for a second, and finish what they began.
        settled = clock.now() + timedelta(seconds=current().database_timeout + SETTLE_SECONDS)
        wait_until(min(settled, until))
        _require_movable(_find(organization.slug))
        seal_all_events(actor, organization.id)
        seen = _synchronize_all(peer, organization.id, until)
        # Nothing that the target could refuse is left for later.
        peer.call("prepare", organization=_describe(organization.id), move=until.isoformat())
        _decide(organization.id, cell, until)
    except BaseException:
        _resume(organization.id, until)
        raise
    progress("Decided: the target is authoritative.")
    _activate(peer, _find(organization.slug))
    _confirm(organization.id)
    paused = time.monotonic() - began
    return MoveResult(paused, _count_late_rows(organization.id, seen))


def require_intact_log(actor: Actor, organization_id: str) -> None:
    """Raise Conflict if the chain of the organization's audit log is damaged."""
    inside = actor.acting_in(organization_id, actor.permissions)
    after: int | None = 0
    while after is not None:
        verified = verify_audit_log(inside, after=after)
        if verified.problems:
            raise Conflict("The audit log is damaged. Verify it with: flask --app wsgi audit verify")
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


def wait_until(at: datetime) -> None:
    """Wait until the database's clock shows this time."""
    while (left := (at - clock.now()).total_seconds()) > 0:
        time.sleep(min(left, 0.2))


def list_served() -> Iterator[tuple[str, str]]:
    """Iterate over (slug, routing key) of the organizations that this cell serves or pauses, in the order of slugs."""
    after = ""
    while page := _served_page(after):
        yield from page
        after = page[-1][0]


@read
def list_unconfirmed() -> list[tuple[str, str]]:
    """Return (slug, cell) of some organizations that were given to a cell which has not confirmed that it serves."""
    waiting = select(Organization.slug, Organization.moved_to).where(
        Organization.moved_to.is_not(None), Organization.status == DELETED, Organization.purge_at.is_(None)
    )
    return [(slug, str(cell)) for slug, cell in db.session.execute(waiting.limit(5))]


@read
def _served_page(after: str) -> list[tuple[str, str]]:
    own = (Organization.slug > after) & Organization.moved_to.is_(None)
    served = own & Organization.is_root.is_(False) & Organization.status.in_((ACTIVE, SUSPENDED))
    found = select(Organization.slug, Organization.id).where(served).order_by(Organization.slug).limit(BATCH)
    return [(slug, organization_id) for slug, organization_id in db.session.execute(found)]


@read
def _find(slug: str) -> Any:
    table = Organization.__table__
    row = db.session.execute(select(table).where(table.c.slug == slug)).first()
    if row is None or (row.status == PURGED and row.moved_to is None):
        raise NotFound("There is no such organization.")
    return row


def find_decided(slug: str, cell: str) -> Any:
    """Return the organization. Raises NotFound, and Conflict unless it was given to the cell."""
    organization = _find(slug)
    if organization.moved_to is None:
        raise Conflict("The move was not decided. The organization is served here.")
    if organization.moved_to != cell:
        raise Conflict(f"The organization has moved to {organization.moved_to}, not to {cell}.")
    return organization


def require_own_rows(organization: Any) -> None:
    """Raise Conflict if the rows of the organization are not here any more."""
    if organization.status != DELETED:
        raise Conflict("The organization has no rows here any more. Move it at the cell that had it last.")


@read
def _require_movable(organization: Any) -> None:
    if organization.is_root or organization.status != ACTIVE:
        raise Conflict("Only active organizations can be moved, and never root.")
    running = select(func.count(UserImport.id)).where(
        UserImport.organization_id == organization.id, UserImport.status.in_(IN_PROGRESS)
    )
    if db.session.scalar(running):
        raise Conflict("Users are being imported. Wait until that is done.")


def list_digests(organization_id: str, table: Table) -> dict[str, str]:
    """Return a digest of each row of the organization, by its primary key in JSON."""
    return {
        key: hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:32]
        for key, record in _records(table, organization_id)
    }


def _synchronize_all(peer: Peer, organization_id: str, until: datetime) -> dict[str, dict[str, str]]:
    """Copy until nothing differs any more, and return the digests of all rows. Raises MoveFailed."""
    for _ in range(_ROUNDS):
        if clock.now() > until - _MARGIN:
            raise MoveFailed(
                "The pause was too short for the last rows. Allow a longer one with --max-pause."
            )
        differing, digests = _synchronize(peer, organization_id)
        if not set(differing) - _STATISTICS:
            return digests
    raise MoveFailed(f"Rows of {', '.join(sorted(differing))} are still being written, or cannot be stored.")


def _synchronize(peer: Peer, organization_id: str) -> tuple[dict[str, int], dict[str, dict[str, str]]]:
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


def _require_equal_rows(peer: Peer, organization: Any) -> None:
    """Raise Conflict unless the target still has the rows that were compared before the move was decided.

    So no rows of another move are served. Those that expire may be missing, because the janitors of both cells delete
    them, each at its own time. Nothing is copied, because what differs may be newer there.
    """
    require_own_rows(organization)
    if differing := _compare(peer, organization):
        raise Conflict(
            f"Rows of {', '.join(differing)} differ in the two cells, so the target is not told to serve. List them "
            "with --check. Then let the target serve with the rows from here (--finish) or serve here again (--return)."
        )


def _compare(peer: Peer, organization: Any) -> dict[str, Difference]:
    """Return the differences by table, without those that a move allows."""
    found = {}
    for table in compared_tables():
        if table.name in _STATISTICS:
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


@transaction
def _pause(organization_id: str, seconds: int) -> datetime:
    until = clock.now() + timedelta(seconds=seconds)
    _set_pause(Organization.id == organization_id, until)
    cache_invalidation.invalidate(organization_id)
    return until


@transaction
def _resume(organization_id: str, until: datetime) -> None:
    """End this pause, unless the move was decided."""
    _set_pause((Organization.id == organization_id) & (Organization.moving_until == until), None)
    cache_invalidation.invalidate(organization_id)


def _set_pause(condition: Any, until: datetime | None) -> None:
    db.session.execute(
        update(Organization)
        .where(condition, Organization.moved_to.is_(None))
        .values(moving_until=until, version=Organization.version + 1)
    )


@transaction
def _decide(organization_id: str, cell: str, until: datetime) -> None:
    """Give the organization to the cell, provided that this pause still lasts. Raises MoveFailed.

    Its messages are not due here any more, and the roles of root's users end. Nothing is purged before the target has
    confirmed that it serves.
    """
    now = clock.now()
    changed = count_changed(
        update(Organization)
        .where(
            Organization.id == organization_id,
            Organization.status == ACTIVE,
            Organization.moved_to.is_(None),
            Organization.moving_until == until,
            Organization.moving_until > now + _MARGIN,
        )
        .values(status=DELETED, moved_to=cell, deleted_at=now, version=Organization.version + 1)
    )
    if changed != 1:
        raise MoveFailed("The pause ended before everything was copied. The organization goes on here.")
    db.session.execute(
        update(OutboxMessage)
        .where(OutboxMessage.organization_id == organization_id, OutboxMessage.done_at.is_(None))
        .values(available_at=now + _NEVER)
        .execution_options(synchronize_session=False)
    )
    db.session.execute(
        delete(RoleAssignment)
        .where(
            RoleAssignment.organization_id == organization_id,
            RoleAssignment.user_organization_id != organization_id,
        )
        .execution_options(synchronize_session=False)
    )
    cache_invalidation.invalidate(organization_id)


@transaction
def _confirm(organization_id: str) -> None:
    """Note that the target serves. The rows here stay for thirty days, like those of a deleted organization."""
    db.session.execute(
        update(Organization)
        .where(
            Organization.id == organization_id,
            Organization.moved_to.is_not(None),
            Organization.status == DELETED,
            Organization.purge_at.is_(None),
        )
        .values(purge_at=clock.now() + _RETENTION)
    )


@transaction
def serve_again(actor: Actor, organization: Any, *, cutoffs: Mapping[str, datetime] | None = None) -> None:
    """Serve an organization here again whose move to ``organization.moved_to`` was decided.

    Raises Conflict if the target has confirmed that it serves. With ``cutoffs``, columns that invalidate what may have
    changed there, it is enough that the rows here have not been purged. Audit: ``organization.resumed``.
    """
    has_rows: ColumnElement[bool] = Organization.purge_at.is_(None)
    if cutoffs is not None:
        has_rows = has_rows | (Organization.purge_at > clock.now())
    changed = count_changed(
        update(Organization)
        .where(
            Organization.id == organization.id,
            Organization.status == DELETED,
            Organization.moved_to == organization.moved_to,
            Organization.moving_until == organization.moving_until,
            has_rows,
        )
        .values(
            status=ACTIVE,
            moved_to=None,
            moving_until=None,
            deleted_at=None,
            purge_at=None,
            version=Organization.version + 1,
            **(cutoffs or {}),
        )
    )
    if changed != 1 and cutoffs is None:
        raise Conflict(f"{organization.moved_to} has served the organization.")
    if changed != 1:
        raise Conflict("The rows of the organization are being purged here.")
    db.session.execute(
        update(OutboxMessage)
        .where(OutboxMessage.organization_id == organization.id, OutboxMessage.done_at.is_(None))
        .values(available_at=clock.now())
        .execution_options(synchronize_session=False)
    )
    cache_invalidation.invalidate(organization.id)
    transfer.record_in_root_too(
        actor,
        organization.id,
        organization.slug,
        "organization.resumed",
        None if cutoffs is None else {"lost_cell": organization.moved_to},
    )


def _describe(organization_id: str) -> dict[str, Any]:
    with transfer.snapshot() as connection:
        return transfer.describe_organization(connection, organization_id) | {"status": ACTIVE}


def _activate(peer: Peer, organization: Any) -> None:
    with transfer.snapshot() as connection:
        rows = list(transfer.rows_of(connection, OUTBOX, organization.id))
    messages = [row_to_record(row, OUTBOX) for row in rows if row.done_at is None]
    at = clock.now().isoformat()
    peer.call(
        "activate",
        organization=_describe(organization.id),
        move=organization.moving_until.isoformat(),
        messages=messages,
        after=at,
    )


def _count_late_rows(organization_id: str, seen: Mapping[str, Mapping[str, str]]) -> dict[str, int]:
    found = {}
    for table in compared_tables():
        known = seen[table.name]
        digests = list_digests(organization_id, table)
        late = sum(known.get(key) != digest for key, digest in digests.items())
        if late and table.name not in _STATISTICS:
            found[table.name] = late
    return found
