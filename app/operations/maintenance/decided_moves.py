"""Moves that were decided and not confirmed: compare the cells, finish the move, or take the organization back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct
from sqlalchemy import ColumnElement, select, update

from app.extensions import db
from app.fast_path import cache_invalidation
from app.models.audit import OutboxMessage
from app.models.organization import ACTIVE, DELETED, PURGED, Organization
from app.operations.audit.chain import seal_all_events
from app.operations.maintenance import transfer
from app.operations.maintenance.move_peer import (
    MAX_ROUNDS,
    STATISTICS,
    Difference,
    Peer,
    Progress,
    abandon,
    activate,
    begin,
    compare_rows,
    find_organization,
    require_intact_log,
    synchronize,
)
from app.operations.store import clock
from app.operations.store.transactions import count_changed, read, transaction
from app.rules.actor import Actor
from app.rules.errors import Conflict

_RETENTION = timedelta(days=30)


class Comparison(Struct, frozen=True):
    """Whether the target serves a moved organization, and what differs between the cells, by table."""

    is_served_there: bool
    tables: Mapping[str, Difference]


def compare_move(actor: Actor, slug: str, cell: str, peer: Peer) -> Comparison:
    """Compare the rows of an organization that was given to the cell with those there, and change nothing.

    Raises NotFound, Conflict if the move was not decided, and MoveFailed.
    """
    actor.require("instance:write")
    organization = find_decided(slug, cell)
    status = begin(peer, organization)
    return Comparison(status != PURGED, compare_rows(peer, organization))


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
        for _ in range(MAX_ROUNDS):
            differing, _digests = synchronize(peer, organization.id)
            progress(f"{sum(differing.values())} rows copied.")
            if not set(differing) - STATISTICS:
                break
        require_equal_rows(peer, organization)
        activate(peer, organization)
    confirm(organization.id)


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


@read
def list_unconfirmed() -> list[tuple[str, str]]:
    """Return (slug, cell) of some organizations that were given to a cell which has not confirmed that it serves."""
    waiting = select(Organization.slug, Organization.moved_to).where(
        Organization.moved_to.is_not(None), Organization.status == DELETED, Organization.purge_at.is_(None)
    )
    return [(slug, str(cell)) for slug, cell in db.session.execute(waiting.limit(5))]


def find_decided(slug: str, cell: str) -> Any:
    """Return the organization. Raises NotFound, and Conflict unless it was given to the cell."""
    organization = find_organization(slug)
    if organization.moved_to is None:
        raise Conflict("The move was not decided. The organization is served here.")
    if organization.moved_to != cell:
        raise Conflict(f"The organization has moved to {organization.moved_to}, not to {cell}.")
    return organization


def require_own_rows(organization: Any) -> None:
    """Raise Conflict if the rows of the organization are not here any more."""
    if organization.status != DELETED:
        raise Conflict("The organization has no rows here any more. Move it at the cell that had it last.")


def require_equal_rows(peer: Peer, organization: Any) -> None:
    """Raise Conflict unless the target still has the rows that were compared before the move was decided.

    So no rows of another move are served. Those that expire may be missing, because the janitors of both cells delete
    them, each at its own time. Nothing is copied, because what differs may be newer there.
    """
    require_own_rows(organization)
    if differing := compare_rows(peer, organization):
        raise Conflict(
            f"Rows of {', '.join(differing)} differ in the two cells, so the target does not start to serve. List them "
            "with --check. Then let the target serve with the rows from here (--finish) or serve here again (--return)."
        )


@transaction
def confirm(organization_id: str) -> None:
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
def serve_again(actor: Actor, organization: Any) -> None:
    """Serve an organization here again whose move to ``organization.moved_to`` was decided.

    Raises Conflict if the target has confirmed that it serves. Audit: ``organization.resumed``.
    """
    if not change_decided(organization, Organization.purge_at.is_(None), status=ACTIVE):
        raise Conflict(f"{organization.moved_to} has served the organization.")
    release_messages(organization.id, clock.now())
    transfer.record_in_root_too(actor, organization.id, organization.slug, "organization.resumed")


def change_decided(organization: Any, condition: ColumnElement[bool], **values: Any) -> bool:
    """Let this cell have an organization again that was given to another one, and return whether that succeeded.

    Runs in the caller's transaction, and only if the condition holds and the organization is as it was read.
    """
    changed = count_changed(
        update(Organization)
        .where(
            Organization.id == organization.id,
            Organization.status == DELETED,
            Organization.moved_to == organization.moved_to,
            Organization.moving_until == organization.moving_until,
            condition,
        )
        .values(
            moved_to=None,
            moving_until=None,
            deleted_at=None,
            purge_at=None,
            version=Organization.version + 1,
            **values,
        )
    )
    cache_invalidation.invalidate(organization.id)
    return changed == 1


def release_messages(organization_id: str, at: datetime) -> None:
    """Let the organization's messages be due at that time."""
    count_changed(
        update(OutboxMessage)
        .where(OutboxMessage.organization_id == organization_id, OutboxMessage.done_at.is_(None))
        .values(available_at=at)
    )
