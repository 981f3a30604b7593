"""After a whole organization's sign-ins were ended by a moment: their rows go, and clients hear, in small batches.

The moment alone decides whether a sign-in lives; nothing here is waited for. A receipt that is not settled is the list
of what is left to do, so a worker that dies in between leaves the rest to the janitor.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import select, update

from app.extensions import db
from app.models.revocation_receipt import RevocationReceipt
from app.models.session import Session
from app.operations import clock
from app.operations.people.sessions import end_sessions
from app.operations.transaction import count_changed, read, transaction
from app.rules.errors import Unavailable
from app.rules.identifiers import first_id_at
from app.tenant_fence import ACROSS

BATCH = 200
# So much is done by whoever revoked, before the answer; the janitor does the rest.
_AT_ONCE = 3
_MOST_RECEIPTS = 100


def begin() -> None:
    """The first sign-ins are cleared; whatever fails here the janitor does again."""
    try:
        for _, _ in zip(range(_AT_ONCE), settle(), strict=False):
            pass
    except Unavailable:
        return


def settle(batch: int = BATCH) -> Iterator[int]:
    """How many sign-ins each step cleared, until no receipt is left to settle."""
    for organization_id, receipt_id, moment in _unsettled():
        while True:
            cleared = _clear(organization_id, receipt_id, moment, batch)
            yield cleared
            if cleared < batch:
                break


@read
def _unsettled() -> list[tuple[str, UUID, datetime]]:
    rows = db.session.execute(
        select(RevocationReceipt.organization_id, RevocationReceipt.id, RevocationReceipt.issued_before)
        .where(RevocationReceipt.settled_at.is_(None))
        .order_by(RevocationReceipt.created_at)
        .limit(_MOST_RECEIPTS)
        .execution_options(**ACROSS)
    )
    return [(organization_id, receipt_id, moment) for organization_id, receipt_id, moment in rows]


@transaction
def _clear(organization_id: str, receipt_id: UUID, moment: datetime, batch: int) -> int:
    """A batch of dead sign-ins is gone, and the receipt is settled when none was left."""
    ids = db.session.scalars(
        select(Session.id)
        .where(
            Session.organization_id == organization_id,
            Session.created_at < moment,
            # Ids are ordered by time: of many living sign-ins none is looked at.
            Session.id < first_id_at(moment + timedelta(minutes=5)),
        )
        .limit(batch)
    ).all()
    if ids:
        end_sessions(organization_id, Session.id.in_(ids))
    if len(ids) < batch:
        count_changed(
            update(RevocationReceipt)
            .where(RevocationReceipt.organization_id == organization_id, RevocationReceipt.id == receipt_id)
            .values(settled_at=clock.now())
        )
    return len(ids)
