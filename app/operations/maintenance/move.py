"""Move an organization to another cell of the service while clients use it.

Cells are installations with the same base URL and databases of their own. The source drives the move and talks to a
receiver in the target, one JSON document a line. Rows are copied while the source serves. Then the source answers this
organization's requests with 503 for a few seconds, while what has changed meanwhile is copied and every row compared.

One conditional UPDATE at the source decides: before it the source is authoritative and goes on by itself when the pause
ends, whatever became of the move; after it the target is, which then starts to serve. So at no time do both serve.

The end of the pause names the move. The source keeps it and the target's tombstone has it too, so that a decided move
is finished or taken back only with the tombstone that it was prepared in.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct
from sqlalchemy import delete, func, select, update

from app.config import current
from app.extensions import db
from app.fast_path import cache_invalidation
from app.models.audit import OutboxMessage
from app.models.organization import ACTIVE, DELETED, PURGED, SUSPENDED, Organization
from app.models.user import IN_PROGRESS, RoleAssignment, UserImport
from app.operations.audit.chain import seal_all_events
from app.operations.maintenance import transfer
from app.operations.maintenance.decided_moves import confirm, require_equal_rows
from app.operations.maintenance.move_peer import (
    BATCH,
    MAX_ROUNDS,
    STATISTICS,
    MoveFailed,
    Peer,
    Progress,
    abandon,
    activate,
    begin,
    compared_tables,
    describe,
    find_organization,
    list_digests,
    require_intact_log,
    synchronize,
)
from app.operations.store import clock
from app.operations.store.rows import iterate_rows
from app.operations.store.transactions import count_changed, read, transaction
from app.rules.actor import Actor
from app.rules.errors import Conflict, DomainError

MAX_PAUSE_SECONDS = 60
# How long a process may still use what it has cached, and finish what it began, beside the database's own timeout.
SETTLE_SECONDS = 4.0
# Messages of an organization that was given away: its rows are purged before, or it is taken back.
_NEVER = timedelta(days=36_500)
# The pause must still last for so long when the move is decided: processes read the database's clock at a distance.
_MARGIN = timedelta(seconds=3)


class MoveResult(Struct, frozen=True):
    """The seconds of the pause, and rows that the source still wrote after the move was decided, by table."""

    paused_seconds: float
    late_rows: Mapping[str, int]


def move_organization(
    actor: Actor,
    slug: str,
    cell: str,
    peer: Peer,
    *,
    max_pause: int = MAX_PAUSE_SECONDS,
    progress: Progress = lambda text: None,
) -> MoveResult:
    """Move an organization to the cell of the receiver. Run it again after a failure: it continues or starts again.

    ``max_pause`` limits the seconds in which its requests get 503. A move that needs more is given up, and the source
    goes on. Raises NotFound, Conflict and MoveFailed. Audit: ``organization.exported`` here, ``organization.imported``
    there.
    """
    actor.require("instance:write")
    organization = find_organization(slug)
    if organization.moved_to not in {None, cell}:
        raise Conflict(f"The organization has moved to {organization.moved_to} already.")
    if organization.moved_to == cell:
        progress("The move was decided before. Activating the organization in the target cell.")
        if begin(peer, organization) == PURGED:
            require_equal_rows(peer, organization)
            activate(peer, organization)
        confirm(organization.id)
        return MoveResult(0.0, {})
    _require_movable(organization)
    require_intact_log(actor, organization.id)
    begin(peer, organization)
    transfer.record_export(actor, organization.id, slug)
    try:
        _copy_while_served(peer, organization.id, progress)
        return _switch(actor, organization, cell, peer, max_pause, progress)
    except DomainError:
        if find_organization(slug).moved_to is None:
            abandon(peer)
        raise


def _copy_while_served(peer: Peer, organization_id: str, progress: Progress) -> None:
    """Copy until few rows are left for the pause, or until another round would not leave much fewer.

    Each round reads every row, and in that time clients change others.
    """
    before = math.inf
    for _ in range(MAX_ROUNDS):
        copied = sum(synchronize(peer, organization_id)[0].values())
        progress(f"{copied} rows copied while it is served.")
        if copied <= BATCH or copied > before / 2:
            return
        before = copied


def _switch(
    actor: Actor, organization: Any, cell: str, peer: Peer, max_pause: int, progress: Progress
) -> MoveResult:
    began = time.monotonic()
    until = _pause(organization.id, max_pause)
    try:
        # Workers may serve from their caches for a second, and finish what they began.
        settled = clock.now() + timedelta(seconds=current().database_timeout + SETTLE_SECONDS)
        wait_until(min(settled, until))
        _require_movable(find_organization(organization.slug))
        seal_all_events(actor, organization.id)
        seen = _synchronize_all(peer, organization.id, until)
        # Nothing that the target could refuse is left for later.
        peer.call("prepare", organization=describe(organization.id), move=until.isoformat())
        _decide(organization.id, cell, until)
    except BaseException:
        _resume(organization.id, until)
        raise
    progress("Decided: the target is authoritative.")
    activate(peer, find_organization(organization.slug))
    confirm(organization.id)
    paused = time.monotonic() - began
    return MoveResult(paused, _count_late_rows(organization.id, seen))


def wait_until(at: datetime) -> None:
    """Wait until the database's clock shows this time."""
    while (left := (at - clock.now()).total_seconds()) > 0:
        time.sleep(min(left, 0.2))


def list_served() -> Iterator[tuple[str, str]]:
    """Iterate over (slug, routing key) of the organizations that this cell serves or pauses, in the order of slugs."""
    served = select(Organization.slug, Organization.id).where(
        Organization.moved_to.is_(None),
        Organization.is_root.is_(False),
        Organization.status.in_((ACTIVE, SUSPENDED)),
    )
    return iterate_rows(served, Organization.slug)


@read
def _require_movable(organization: Any) -> None:
    if organization.is_root or organization.status != ACTIVE:
        raise Conflict("Only active organizations can be moved, and never root.")
    running = select(func.count(UserImport.id)).where(
        UserImport.organization_id == organization.id, UserImport.status.in_(IN_PROGRESS)
    )
    if db.session.scalar(running):
        raise Conflict(
            "Users are being imported. Wait until that is done. If the command that imports them was stopped, repeat "
            "it with --resume, or cancel the import in the portal."
        )


def _synchronize_all(peer: Peer, organization_id: str, until: datetime) -> dict[str, dict[str, str]]:
    """Copy until nothing differs, and return the digests of all rows. Raises MoveFailed."""
    for _ in range(MAX_ROUNDS):
        if clock.now() > until - _MARGIN:
            raise MoveFailed(
                "The pause was too short for the last rows. Allow a longer one with --max-pause."
            )
        differing, digests = synchronize(peer, organization_id)
        if not set(differing) - STATISTICS:
            return digests
    raise MoveFailed(f"Rows of {', '.join(sorted(differing))} are still being written, or cannot be stored.")


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

    Its messages are no longer due here, and the roles of root's users are removed. Nothing is purged before the target
    has confirmed that it serves.
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
    count_changed(
        update(OutboxMessage)
        .where(OutboxMessage.organization_id == organization_id, OutboxMessage.done_at.is_(None))
        .values(available_at=now + _NEVER)
    )
    count_changed(
        delete(RoleAssignment).where(
            RoleAssignment.organization_id == organization_id,
            RoleAssignment.user_organization_id != organization_id,
        )
    )
    cache_invalidation.invalidate(organization_id)


def _count_late_rows(organization_id: str, seen: Mapping[str, Mapping[str, str]]) -> dict[str, int]:
    found = {}
    for table in compared_tables():
        known = seen[table.name]
        digests = list_digests(organization_id, table)
        late = sum(known.get(key) != digest for key, digest in digests.items())
        if late and table.name not in STATISTICS:
            found[table.name] = late
    return found
