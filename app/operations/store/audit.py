"""Audit: one row for each change, in the change's own transaction; no row, no change (AU-1).

Webhooks hear of the same events: there is no other door to them, so nothing is told that is not in the log. Nor does
root act anywhere that its administrators are not told.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select

from app.models.audit import AuditEvent
from app.operations.audit.webhook_announcements import announce
from app.operations.mail.root_announcements import announce_root
from app.operations.statements import Statement, insert_into
from app.operations.store import clock
from app.operations.store.transactions import current_unit, witnessed_by
from app.rules.actor import Actor
from app.rules.identifiers import client_id_of, new_id, public_id

_INSERT = Statement(insert_into(AuditEvent))


def record(
    actor: Actor,
    action: str,
    *,
    target_type: str | None = None,
    target_id: str | None = None,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> None:
    """The event is part of the transaction under way; it also proves that the transaction was committed.

    ``action`` is past tense (``client.registered``), ``target_id`` a public id, ``before`` and ``after`` the changed
    fields; neither ever holds a secret, token or code.
    """
    unit = current_unit()
    unit.events += 1
    # The same id at each attempt: were an attempt committed after all, a second one could not be.
    event_id = unit.once(f"audit {unit.events} {action} {target_id}", new_id)
    event = {
        "organization_id": actor.organization_id,
        "id": event_id,
        "at": clock.now(),
        "action": action,
        "actor_kind": actor.kind,
        "actor_id": actor_public_id(actor),
        "actor_label": actor.label[:200],
        "actor_organization": actor.home_organization_id,
        "target_type": target_type,
        "target_id": target_id,
        "before": dict(before) if before is not None else None,
        "after": dict(after) if after is not None else None,
        "address": actor.address,
        "request_id": actor.request_id,
    }
    _INSERT.write(**event)
    announce(event)
    announce_root(actor, action, before)
    witnessed_by(
        lambda: select(AuditEvent.id).where(
            AuditEvent.organization_id == actor.organization_id, AuditEvent.id == event_id
        )
    )


def actor_public_id(actor: Actor) -> str | None:
    """``usr_…`` or ``cli_…`` of who acts; None for the service itself and for strangers."""
    if actor.user_id is not None:
        return public_id("usr", actor.user_id)
    if actor.client_id is not None:
        return client_id_of(actor.home_organization_id, actor.client_id)
    return None
