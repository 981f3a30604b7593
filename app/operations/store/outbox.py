"""Outbox: what must leave the process after the change it belongs to was committed.

The message is written in the change's own transaction, so neither is there without the other. A dispatcher takes it
by a compare-and-set that pushes it into the future: whoever has it is alone with it, and should that process die it
is due again when the time has come. It is delivered outside of any transaction, at least once.

A receiver that fails is left alone for a while, whatever else waits for it: a dead one costs one attempt a pause and
not one a message, and never keeps others waiting.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import case, select, tuple_, update

from app.extensions import db
from app.models.event import OutboxMessage
from app.operations.store import audit, clock
from app.operations.store.transactions import count_changed, on_commit, read, transaction
from app.rules.actor import Actor
from app.rules.errors import DomainError
from app.rules.identifiers import new_id
from app.rules.store.outgoing_http import DELIVERY_TIMEOUT, retry_delay
from app.tenant_fence import ACROSS

messages_available = threading.Event()
"""Set when this process has committed a message or ended a delivery: the dispatcher looks at once."""


def enqueue(
    organization_id: str,
    kind: str,
    payload: Mapping[str, Any],
    *,
    receiver: str,
    within: timedelta = DELIVERY_TIMEOUT,
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
    on_commit(messages_available.set)
    return message_id


__all__ = [
    "Message",
    "NotNow",
    "Refused",
    "deliver",
    "enqueue",
    "is_to_stranger",
    "may_be_due",
    "register_delivery",
    "take_due",
]

DELIVERED, REFUSED, GIVEN_UP = "delivered", "refused", "given_up"
# Longer than a delivery can take: see outgoing.requests.TOTAL_SECONDS.
LEASE_DURATION = timedelta(seconds=30)
_LOOKED_AT = 10
_log = logging.getLogger("gatehouse.outbox")
_jitter = random.SystemRandom()


@dataclass(frozen=True, slots=True)
class Message:
    """A message that was taken to be delivered; ``attempts`` counts this one."""

    organization_id: str
    id: UUID
    kind: str
    receiver: str
    payload: Mapping[str, Any]
    attempts: int
    created_at: datetime
    leased_until: datetime


class DeliveryRejected(Exception):
    """The receiver does not want this message, and trying again would change nothing."""


class DeliveryDeferred(Exception):
    """The receiver is well and does not take this message yet: others need not wait for it."""


_deliveries: dict[str, Callable[[Message], None]] = {}
_receiver_types: dict[str, str] = {}
_to_strangers: set[str] = set()


def register_delivery(
    kind: str,
    deliver: Callable[[Message], None],
    *,
    receiver_type: str = "client",
    to_external_server: bool = False,
) -> None:
    """Messages of the kind are delivered by ``deliver``, outside of any transaction.

    It returns when the receiver has the message, raises Refused when it does not want it and NotNow when it wants it
    later; whatever else it raises means another try, and a pause for the receiver. ``receiver_type`` is what the
    audit log calls such a receiver. ``to_external_server``: it goes to a server that somebody of an organization named, who
    may let it be as slow as it likes.
    """
    _deliveries[kind] = deliver
    _receiver_types[kind] = receiver_type
    if to_external_server:
        _to_strangers.add(kind)


def is_for_external_server(message: Message) -> bool:
    """Whether the message goes to a server that somebody of an organization named."""
    return message.kind in _to_strangers


def claim_due_message(
    *,
    busy_receivers: Collection[tuple[str, str]],
    full_organizations: Collection[str],
    skip_external_servers: bool = False,
) -> Message | None:
    """A message that is due and now this caller's alone, or None.

    Those of the receivers, each told with its organization, and of the organizations wait, and with
    ``skip_external_servers`` those that go to strangers' servers.
    """
    kinds = _deliveries.keys() - (_to_strangers if skip_external_servers else set())
    for candidate in _due(kinds, busy_receivers, full_organizations):
        if _lease(candidate):
            return candidate
    return None


def deliver(message: Message) -> None:
    """The message is with its receiver, or will be tried again, or is given up for good."""
    try:
        _deliveries[message.kind](message)
    except DeliveryRejected as refusal:
        _log.warning("%s refused a message of kind %s: %s", message.receiver, message.kind, refusal)
        _end(message, REFUSED)
    except DeliveryDeferred as refusal:
        _note_failure(message, refusal, trace=False)
        _put_off(message, alone=True)
    except DomainError as refusal:
        # The usual: no answer. Its cause names the fault, and its trace would say nothing more.
        _note_failure(message, refusal.__cause__ or refusal, trace=False)
        _put_off(message)
    except Exception as error:  # noqa: BLE001 - one message that cannot be delivered must not end the dispatcher
        _note_failure(message, error, trace=True)
        _put_off(message)
    else:
        _end(message, DELIVERED)


def _note_failure(message: Message, error: BaseException, *, trace: bool) -> None:
    _log.warning(
        "attempt %d at a message of kind %s to %s failed: %s",
        message.attempts, message.kind, message.receiver, type(error).__name__, exc_info=error if trace else None,
    )  # fmt: skip


@read
def _due(
    kinds: Collection[str],
    busy_receivers: Collection[tuple[str, str]],
    full_organizations: Collection[str],
) -> list[Message]:
    now = clock.now()
    rows = db.session.scalars(
        select(OutboxMessage)
        .where(
            OutboxMessage.done_at.is_(None),
            OutboxMessage.available_at <= now,
            # During a deployment a message may be of a kind that only newer workers know.
            OutboxMessage.kind.in_(kinds),
            tuple_(OutboxMessage.organization_id, OutboxMessage.receiver).not_in(busy_receivers),
            OutboxMessage.organization_id.not_in(full_organizations),
        )
        .order_by(OutboxMessage.available_at)
        .limit(_LOOKED_AT)
        .execution_options(**ACROSS)
    ).all()
    return [
        Message(
            row.organization_id,
            row.id,
            row.kind,
            row.receiver,
            row.payload,
            row.attempts + 1,
            row.created_at,
            now + LEASE_DURATION,
        )
        for row in rows
    ]


@transaction
def _lease(message: Message) -> bool:
    # Whoever was faster has counted its attempt.
    changed = count_changed(
        update(OutboxMessage)
        .where(
            OutboxMessage.organization_id == message.organization_id,
            OutboxMessage.id == message.id,
            OutboxMessage.done_at.is_(None),
            OutboxMessage.attempts == message.attempts - 1,
            OutboxMessage.available_at <= clock.now(),
        )
        .values(available_at=message.leased_until, attempts=message.attempts)
    )
    return changed == 1


@transaction
def _end(message: Message, outcome: str) -> None:
    db.session.execute(
        update(OutboxMessage)
        .where(
            OutboxMessage.organization_id == message.organization_id,
            OutboxMessage.id == message.id,
            OutboxMessage.done_at.is_(None),
        )
        .values(done_at=clock.now(), outcome=outcome)
        .execution_options(synchronize_session=False)
    )


@transaction
def _put_off(message: Message, *, alone: bool = False) -> None:
    """Nothing is tried at this receiver for a while, and what would be too late after it is given up.

    ``alone``: only this message waits.
    """
    now = clock.now()
    again_at = now + retry_delay(message.attempts, _jitter.random())
    waiting = (
        (OutboxMessage.organization_id == message.organization_id)
        & (OutboxMessage.receiver == message.receiver)
        & OutboxMessage.done_at.is_(None)
    )
    if alone:
        waiting &= OutboxMessage.id == message.id
    given_up = count_changed(
        update(OutboxMessage)
        .where(waiting, OutboxMessage.expires_at <= again_at)
        .values(done_at=now, outcome=GIVEN_UP)
    )
    db.session.execute(
        update(OutboxMessage)
        .where(waiting, (OutboxMessage.available_at < again_at) | (OutboxMessage.id == message.id))
        .values(
            available_at=again_at,
            attempts=case(
                (OutboxMessage.attempts < message.attempts, message.attempts), else_=OutboxMessage.attempts
            ),
        )
        .execution_options(synchronize_session=False)
    )
    if given_up:
        actor = Actor.system(message.organization_id, "outbox")
        after = {"kind": message.kind, "messages": given_up}
        target = _receiver_types.get(message.kind, "client")
        audit.record(actor, "delivery.given_up", target_type=target, target_id=message.receiver, after=after)
