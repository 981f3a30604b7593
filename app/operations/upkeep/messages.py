"""Messages: what must leave the process after a commit, put down in the transaction of the change it belongs to."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

from app.extensions import db
from app.models.event import OutboxMessage
from app.operations import clock
from app.operations.transaction import on_commit
from app.rules.identifiers import new_id
from app.rules.outgoing.retries import GIVEN_UP_AFTER

may_be_due = threading.Event()
"""Set when this process has committed a message or ended a delivery: the dispatcher looks at once."""


def enqueue(
    organization_id: str,
    kind: str,
    payload: Mapping[str, Any],
    *,
    receiver: str,
    within: timedelta = GIVEN_UP_AFTER,
) -> UUID:
    """The message leaves once the transaction under way has committed, within that time or never; returns its id.

    ``receiver`` is the public id of who gets it. The payload holds no secret in clear.
    """
    now = clock.now()
    message_id = new_id()
    db.session.add(
        OutboxMessage(
            organization_id=organization_id,
            id=message_id,
            kind=kind,
            receiver=receiver,
            payload=dict(payload),
            created_at=now,
            available_at=now,
            attempts=0,
            expires_at=now + within,
        )
    )
    on_commit(may_be_due.set)
    return message_id
