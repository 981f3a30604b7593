"""Serve an organization again whose cell is lost for good, from the rows that the cell before it still has.

For those rows this is what restoring a backup is: whatever the lost cell did is missing. So what was issued before is
invalid, and what ended since the move ends again as far as an audit export says so.

Until that is done the organization is suspended. A recovery that was interrupted is repeated with the same command.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import delete, update

from app.extensions import db
from app.fast_path import cache_invalidation
from app.models.audit import InstanceFact
from app.models.organization import ACTIVE, SUSPENDED, Organization
from app.operations.maintenance.decided_moves import (
    change_decided,
    find_decided,
    release_messages,
    require_own_rows,
)
from app.operations.maintenance.exported_events import end_again, leaves_suspended, read_export
from app.operations.maintenance.move_peer import find_organization
from app.operations.maintenance.restore import RestoreReport, cutoffs_of
from app.operations.maintenance.transfer import record_in_root_too
from app.operations.store import clock
from app.operations.store.transactions import count_changed, insert_or_update, read, transaction
from app.rules.actor import Actor
from app.rules.errors import Conflict

# Longer than any export takes to be applied. Then its messages are sent also if nobody repeats the command.
_MESSAGES_WAIT = timedelta(hours=1)


def recover_organization(
    actor: Actor,
    slug: str,
    cell: str,
    exports: Iterable[Iterable[str]] = (),
    *,
    block_secrets: bool = True,
    reset_passwords: bool = True,
) -> RestoreReport:
    """Serve an organization here again that was given to a cell which will never serve again.

    Nothing here can tell whether that is so: while the cell serves, both would. Tokens, sessions, codes, links and the
    like from before are invalid. With ``block_secrets``, client secrets do not work until they are confirmed, and with
    ``reset_passwords``, users choose new passwords. ``exports`` are audit exports of the lost cell: what ended there
    ends again before the organization is served. Run it again if it was interrupted. Raises NotFound, Conflict if it
    was not given to the cell or its rows are purged, and InvalidInput if an export cannot be read. Audit:
    ``organization.suspended``, ``organization.resumed``, and of each operation.
    """
    actor.require("instance:write")
    events = [event for lines in exports for event in read_export(lines)]
    own = [event for event in events if event.affected_organization == slug]
    report = RestoreReport(
        at=clock.now(), organizations=1, blocks_secrets=block_secrets, resets_passwords=reset_passwords
    )
    organization = find_organization(slug)
    if _is_interrupted(organization, cell):
        _set_cutoffs(organization.id, cutoffs_of(report))
    else:
        organization = find_decided(slug, cell)
        require_own_rows(organization)
        _take_suspended(actor, organization, cutoffs_of(report))
    end_again(own, report)
    _finish(actor, organization, cell, is_suspended=leaves_suspended(own, slug))
    return report


def _fact(organization_id: str) -> str:
    return f"recovery {organization_id}"


@read
def _is_interrupted(organization: Any, cell: str) -> bool:
    fact = db.session.get(InstanceFact, _fact(organization.id), populate_existing=True)
    is_waiting = organization.status == SUSPENDED and organization.moved_to is None
    return is_waiting and fact is not None and fact.value["cell"] == cell


@transaction
def _take_suspended(actor: Actor, organization: Any, cutoffs: Mapping[str, datetime]) -> None:
    """Take the organization back, suspended, unless its rows are being purged. The target may have confirmed."""
    now = clock.now()
    has_rows = Organization.purge_at.is_(None) | (Organization.purge_at > now)
    if not change_decided(organization, has_rows, status=SUSPENDED, **cutoffs):
        raise Conflict("The rows of the organization are being purged here.")
    release_messages(organization.id, now + _MESSAGES_WAIT)
    values = {"value": {"cell": organization.moved_to}, "updated_at": now}
    insert_or_update(InstanceFact, {"name": _fact(organization.id)}, values)
    after = {"lost_cell": organization.moved_to}
    record_in_root_too(actor, organization.id, organization.slug, "organization.suspended", after)


@transaction
def _set_cutoffs(organization_id: str, cutoffs: Mapping[str, datetime]) -> None:
    count_changed(
        update(Organization)
        .where(Organization.id == organization_id)
        .values(version=Organization.version + 1, **cutoffs)
    )
    cache_invalidation.invalidate(organization_id)


@transaction
def _finish(actor: Actor, organization: Any, cell: str, *, is_suspended: bool) -> None:
    """Serve the organization, unless it was suspended or deleted in the lost cell."""
    taken = (Organization.id == organization.id) & (Organization.status == SUSPENDED)
    status = SUSPENDED if is_suspended else ACTIVE
    changed = count_changed(
        update(Organization).where(taken).values(status=status, version=Organization.version + 1)
    )
    release_messages(organization.id, clock.now())
    db.session.execute(delete(InstanceFact).where(InstanceFact.name == _fact(organization.id)))
    cache_invalidation.invalidate(organization.id)
    if changed and not is_suspended:
        record_in_root_too(
            actor, organization.id, organization.slug, "organization.resumed", {"lost_cell": cell}
        )
