"""The audit log: one row for each change, written in the transaction of the change (AU-1).

Subscribers receive the same events. Webhooks and the notices about root's access are sent by them, so nothing
is announced that is not in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import select

from app.fast_path.compiled_query import CompiledQuery, insert_into
from app.models.audit import AuditEvent
from app.models.base import has_key
from app.operations.store import clock
from app.operations.store.transactions import current_unit_of_work, verify_commit_with
from app.rules.actor import Actor
from app.rules.identifiers import format_client_id, new_id, public_id

Subscriber = Callable[[Actor, Mapping[str, Any]], None]

_INSERT = CompiledQuery(insert_into(AuditEvent))
_subscribers: list[Subscriber] = []
_root_subscribers: list[Subscriber] = []


def subscribe(subscriber: Subscriber, *, only_from_root: bool = False) -> None:
    """Call the subscriber with the actor and the columns of every event, in the transaction that records it.

    ``only_from_root`` limits them to what root's users and clients do in other organizations. Subscribing twice has no
    effect.
    """
    subscribers = _root_subscribers if only_from_root else _subscribers
    if subscriber not in subscribers:
        subscribers.append(subscriber)


def record(
    actor: Actor,
    action: str,
    target_type: str | None = None,
    target_id: str | None = None,
    *,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> None:
    """Record an event in the current transaction, and use its row to verify that the transaction was committed.

    ``action`` is in the past tense (``client.registered``), ``target_id`` is a public id, ``before`` and ``after`` are
    the changed fields. None of them may contain a secret, token or code.
    """
    unit_of_work = current_unit_of_work()
    unit_of_work.event_count += 1
    # Every attempt uses the same id. If an earlier attempt was committed after all, a second one cannot be.
    event_id = unit_of_work.stable_value(f"audit {unit_of_work.event_count} {action} {target_id}", new_id)
    event = {
        "organization_id": actor.organization_id,
        "id": event_id,
        "at": clock.now(),
        "action": action,
        "actor_kind": actor.kind,
        "actor_id": actor_public_id(actor),
        "actor_label": actor.author or "",
        "actor_organization": actor.home_organization_id,
        "target_type": target_type,
        "target_id": target_id,
        "before": dict(before) if before is not None else None,
        "after": dict(after) if after is not None else None,
        "address": actor.ip_address,
        "request_id": actor.request_id,
    }
    _INSERT.write_later(**event)
    is_from_root = actor.is_root and actor.organization_id != actor.home_organization_id
    for notify in (*_subscribers, *(_root_subscribers if is_from_root else ())):
        notify(actor, event)
    verify_commit_with(
        lambda: select(AuditEvent.id).where(has_key(AuditEvent, actor.organization_id, event_id))
    )


def record_user_event(
    actor: Actor,
    action: str,
    user_id: UUID,
    *,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> None:
    """Record an event whose target is a user. The rest is as in ``record``."""
    record(actor, action, "user", public_id("usr", user_id), before=before, after=after)


def actor_public_id(actor: Actor) -> str | None:
    """Return the actor's ``usr_…``, ``cli_…`` or ``idp_…`` id, or None for the service itself and anonymous callers."""
    if actor.user_id is not None:
        return public_id("usr", actor.user_id)
    if actor.client_id is not None:
        return format_client_id(actor.home_organization_id, actor.client_id)
    if actor.provider_id is not None:
        return public_id("idp", actor.provider_id)
    return None
