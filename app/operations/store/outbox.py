"""Outbox: messages that leave the process only after the change they belong to was committed.

A message is written in the transaction of its change, so that neither exists without the other. A dispatcher leases it
with a compare-and-set that moves its due time into the future. If that process dies, the message becomes due again
when the lease expires. Messages are delivered outside of any transaction, at least once.

After a failed delivery, all messages of the same receiver wait, and those that have not failed are tried first. A
receiver that is down therefore costs one attempt per pause and one per new message, and never delays other receivers.
New messages to an external server that is down wait too, but for a minute at most: it may not want one message only, or
be up again. When it accepts one, those that only waited are sent.

A user may send a message immediately, such as a test. It waits for no other message, and delays none if it fails. If it
is delivered, those that have failed are tried again as well. After other deliveries they keep their time: a server that
rejects some messages only would get these after each of the others, and delay the others each time.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import ColumnElement, case, func, literal, null, select, tuple_, update

from app.database import ACROSS
from app.extensions import db
from app.fast_path.compiled_query import CompiledQuery, insert_into
from app.models.audit import OutboxMessage
from app.models.base import has_key
from app.operations.store import audit, clock
from app.operations.store.rows import make_record
from app.operations.store.transactions import count_changed, on_commit, read, transaction
from app.rules.actor import Actor
from app.rules.errors import DomainError
from app.rules.identifiers import new_id
from app.rules.store.outgoing_http import DELIVERY_TIMEOUT, retry_delay

DELIVERED, REFUSED, GIVEN_UP = "delivered", "refused", "given_up"
FAILED, WAITING, RETRYING, IMMEDIATE = "failed", "waiting", "retrying", "immediate"
"""Outcomes of pending messages: one that was tried in vain, one that waits with it, one that was tried in vain before
its receiver accepted another, and one that is sent immediately.
"""
# Of the messages that wait together, those that have failed come last: their receiver may only not want them.
_BEHIND = timedelta(milliseconds=1)
# An external server that is down gets a new message after this time, or when it is tried again.
_PROBE_INTERVAL = timedelta(minutes=1)
SUSPENSION_PAUSE = timedelta(minutes=5)
"""How long messages may wait after their organization was resumed."""
# Longer than a delivery can take: see outgoing_http.TOTAL_SECONDS.
LEASE_DURATION = timedelta(seconds=30)
# Ids in one statement.
_BATCH = 500
_CANDIDATES = 10
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MAX_COUNTED = 10_000
_INSERT = CompiledQuery(insert_into(OutboxMessage))
# By another index, a place in it would be locked before the message, and a lease does the opposite (deadlocks).
_UPDATE_BY_ID = update(OutboxMessage).with_hint("FORCE INDEX (PRIMARY)", dialect_name="mysql")
_log = logging.getLogger("gatehouse.outbox")
_jitter = random.SystemRandom()


class MessageSignal(threading.Event):
    """Set when this process has committed a message or finished a delivery. The dispatcher then looks immediately.

    ``commits`` tells whether messages were committed in between.
    """

    commits = 0

    def announce(self) -> None:
        """Tell that a message was committed."""
        self.commits += 1
        self.set()


messages_available = MessageSignal()


class Message(Struct, frozen=True):
    """A leased message to deliver; ``attempts`` includes this one. It was due at ``available_at``."""

    organization_id: str
    id: UUID
    kind: str
    receiver: str
    payload: Mapping[str, Any]
    attempts: int
    created_at: datetime
    available_at: datetime
    leased_until: datetime
    outcome: str | None = None

    @property
    def has_waited(self) -> bool:
        """Return whether it was to be delivered before."""
        return self.attempts > 1 or self.available_at > self.created_at

    @property
    def is_immediate(self) -> bool:
        """Return whether a user wants this attempt."""
        return self.outcome == IMMEDIATE


class DeliveryRejected(Exception):
    """The receiver rejects this message, and trying again would not change that."""


class DeliveryDeferred(Exception):
    """The receiver works but does not accept this message yet. Its other messages need not wait."""


class DeliveryUnfinished(Exception):
    """A part of the work is done, and the next attempt goes on with the rest at once: nothing has failed."""


class DeliveryPaused(Exception):
    """A limit is reached or the organization suspended, as expected: nothing has failed, and this was no attempt.

    All messages of the receiver wait until the same time, at most for ``pause``, and are then tried in their order.
    """

    def __init__(self, reason: str, pause: timedelta) -> None:
        super().__init__(reason)
        self.pause = pause


class _Delivery(Struct, frozen=True):
    deliver: Callable[[Message], None]
    receiver_type: str
    to_external_server: bool


# By the kind of message.
_deliveries: dict[str, _Delivery] = {}


def enqueue(
    organization_id: str,
    kind: str,
    payload: Mapping[str, Any],
    *,
    receiver: str,
    expires_in: timedelta = DELIVERY_TIMEOUT,
    immediately: bool = False,
) -> UUID:
    """Add a message that is delivered after the current transaction has committed, and return its id.

    It is given up after ``expires_in``. ``receiver`` is the public id of the receiver. ``immediately`` tries it at once
    even if its receiver is down, and delays no other message. The payload must not contain a secret in clear text.
    """
    now = clock.now()
    message_id = new_id()
    available_at, outcome = (
        (now, IMMEDIATE) if immediately else _first_attempt(organization_id, kind, receiver, now)
    )
    _INSERT.write_later(
        organization_id=organization_id,
        id=message_id,
        kind=kind,
        receiver=receiver,
        payload=dict(payload),
        created_at=now,
        available_at=available_at,
        attempts=0,
        outcome=outcome,
        expires_at=now + expires_in,
    )
    on_commit(messages_available.announce)
    return message_id


def _first_attempt(
    organization_id: str, kind: str, receiver: str, now: datetime
) -> tuple[datetime, str | None]:
    """Return when a new message is tried, and its outcome until then."""
    delivery = _deliveries.get(kind)
    if delivery is None or not delivery.to_external_server:
        return now, None
    oldest = _find_oldest_pending(organization_id, receiver)
    return (
        (min(oldest.available_at, now + _PROBE_INTERVAL), WAITING) if _is_down(oldest, now) else (now, None)
    )


def send_now(organization_id: str, message_id: UUID) -> None:
    """Try a pending message immediately after the current transaction has committed.

    If it is due within the time of a lease, it may be under way, and keeps its time.
    """
    now = clock.now()
    is_idle = OutboxMessage.available_at > now + LEASE_DURATION
    available_at = case((is_idle, _value("available_at", now)), else_=OutboxMessage.available_at)
    count_changed(
        update(OutboxMessage)
        .where(has_key(OutboxMessage, organization_id, message_id), OutboxMessage.done_at.is_(None))
        .values(available_at=available_at, outcome=IMMEDIATE)
    )
    on_commit(messages_available.announce)


def register_delivery(
    kind: str,
    deliver: Callable[[Message], None],
    *,
    receiver_type: str = "client",
    to_external_server: bool = False,
) -> None:
    """Register the function that delivers messages of this kind, outside of any transaction.

    ``deliver`` returns when the receiver has the message. It raises DeliveryRejected if the receiver does not want it,
    DeliveryDeferred if it wants it later, DeliveryUnfinished if it has a part, and DeliveryPaused if it gets none for
    now. After any other exception, the receiver's messages wait. ``receiver_type`` is its name in the audit log. Set
    ``to_external_server`` if an organization chooses the server, which may be arbitrarily slow.
    """
    _deliveries[kind] = _Delivery(deliver, receiver_type, to_external_server)


def is_for_external_server(message: Message) -> bool:
    """Return whether the message goes to a server that an organization chose."""
    return _deliveries[message.kind].to_external_server


@read
def count_waiting() -> dict[str, tuple[int, datetime | None]]:
    """Return how many messages of each kind wait, of the first ``MAX_COUNTED``, and when the oldest was created.

    Messages that wait for the end of a pause are not among the oldest.
    """
    now = clock.now()
    is_paused = (OutboxMessage.attempts == 0) & (OutboxMessage.available_at > now)
    due = (
        select(OutboxMessage.kind, case((is_paused, None), else_=OutboxMessage.created_at).label("since"))
        .where(OutboxMessage.done_at.is_(None), OutboxMessage.available_at < now + DELIVERY_TIMEOUT)
        .order_by(OutboxMessage.available_at)
        .limit(MAX_COUNTED)
        .subquery()
    )
    found = select(due.c.kind, func.count(), func.min(due.c.since)).group_by(due.c.kind)
    waiting: dict[str, tuple[int, datetime | None]] = dict.fromkeys(_deliveries, (0, None))
    for kind, count, oldest in db.session.execute(found.execution_options(**ACROSS)):
        waiting[kind] = (count, oldest)
    return waiting


def claim_due_message(
    *,
    busy_receivers: Collection[tuple[str, str]],
    full_organizations: Collection[str],
    skip_external_servers: bool = False,
) -> Message | None:
    """Lease one due message for the caller, or return None if there is none.

    Skip messages for ``busy_receivers``, pairs of an organization id and a receiver, and of ``full_organizations``.
    """
    kinds = [
        kind
        for kind, delivery in _deliveries.items()
        if not (skip_external_servers and delivery.to_external_server)
    ]
    # Other workers may be faster at all that were found.
    while candidates := _find_due(kinds, busy_receivers, full_organizations):
        for candidate in candidates:
            if _lease(candidate):
                return candidate
    return None


def deliver(message: Message) -> None:
    """Deliver a leased message, and otherwise schedule another attempt or give it up. Audit: ``delivery.given_up``."""
    try:
        _deliveries[message.kind].deliver(message)
    except DeliveryRejected as error:
        _log.warning("%s rejected a message of kind %s: %s", message.receiver, message.kind, error)
        _update(message, done_at=clock.now(), outcome=REFUSED)
    except DeliveryDeferred as error:
        _log_failure(message, error, with_traceback=False)
        _defer(message)
    except DeliveryUnfinished:
        # As if it was new: it may take longer than a message that fails has.
        now = clock.now()
        _update(message, available_at=now, attempts=0, expires_at=now + DELIVERY_TIMEOUT, outcome=None)
    except DeliveryPaused as error:
        _log.info("messages of kind %s to %s wait: %s", message.kind, message.receiver, error)
        _pause(message, error.pause)
    except DomainError as error:
        # Usually there was no response. The cause names the fault, and a traceback would add nothing.
        _log_failure(message, error.__cause__ or error, with_traceback=False)
        _postpone(message)
    except Exception as error:  # noqa: BLE001 - one message that cannot be delivered must not end the dispatcher
        _log_failure(message, error, with_traceback=True)
        _postpone(message)
    else:
        _update(message, done_at=clock.now(), outcome=DELIVERED)
        if (message.has_waited or message.is_immediate) and is_for_external_server(message):
            _note_recovery(message)


def _log_failure(message: Message, error: BaseException, *, with_traceback: bool) -> None:
    _log.warning(
        "attempt %d to deliver a message of kind %s to %s failed: %s",
        message.attempts, message.kind, message.receiver, type(error).__name__,
        exc_info=error if with_traceback else None,
    )  # fmt: skip


@read
def _find_due(
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
            # During a deployment, newer workers may write kinds that this one does not know.
            OutboxMessage.kind.in_(kinds),
            tuple_(OutboxMessage.organization_id, OutboxMessage.receiver).not_in(busy_receivers),
            OutboxMessage.organization_id.not_in(full_organizations),
        )
        .order_by(OutboxMessage.available_at)
        .limit(_CANDIDATES)
        .execution_options(**ACROSS)
    ).all()
    return [
        make_record(Message, row, attempts=row.attempts + 1, leased_until=now + LEASE_DURATION)
        for row in rows
    ]


@transaction
def _lease(message: Message) -> bool:
    # A faster worker has already increased the number of attempts.
    changed = count_changed(
        update(OutboxMessage)
        .where(
            has_key(OutboxMessage, message.organization_id, message.id),
            OutboxMessage.done_at.is_(None),
            OutboxMessage.attempts == message.attempts - 1,
            OutboxMessage.available_at <= clock.now(),
        )
        .values(available_at=message.leased_until, attempts=message.attempts)
    )
    return changed == 1


@transaction
def _update(message: Message, **values: Any) -> None:
    key = has_key(OutboxMessage, message.organization_id, message.id)
    count_changed(update(OutboxMessage).where(key, OutboxMessage.done_at.is_(None)).values(values))


@transaction
def _note_recovery(message: Message) -> None:
    """Let new messages to the receiver be tried immediately again, and send those that only waited.

    Those that have failed keep their time, unless a user sent this message and therefore expects an effect.
    """
    now, organization_id, receiver = clock.now(), message.organization_id, message.receiver
    if not message.is_immediate and not _is_down(_find_oldest_pending(organization_id, receiver), now):
        return
    # Earlier ones may be under way, and later ones belong to an organization that has moved.
    is_later = OutboxMessage.available_at.between(now + LEASE_DURATION, now + DELIVERY_TIMEOUT)
    is_waiting, current = OutboxMessage.outcome == WAITING, OutboxMessage.available_at
    of_failed = _value("available_at", now) if message.is_immediate else current
    released = case((is_waiting, _value("available_at", now - _BEHIND)), else_=of_failed)
    # MySQL assigns in the order of the columns: the first one sees the old outcome.
    values = {
        "available_at": case((is_later, released), else_=current),
        "outcome": case((is_waiting, null()), else_=_value("outcome", RETRYING)),
    }
    are_held = OutboxMessage.outcome.in_((FAILED, WAITING, RETRYING))
    ids = _find_pending_ids(organization_id, receiver, are_held)
    for some in _pending_batches(organization_id, ids):
        count_changed(_UPDATE_BY_ID.where(some, are_held).values(values))


def _value(column: str, value: object) -> ColumnElement[Any]:
    return literal(value, OutboxMessage.__table__.c[column].type)


def _find_oldest_pending(organization_id: str, receiver: str) -> Any:
    return db.session.execute(
        select(OutboxMessage.id, OutboxMessage.available_at, OutboxMessage.outcome)
        .where(*_is_pending_of(organization_id, receiver))
        .order_by(OutboxMessage.id)
        .limit(1)
    ).first()


def _is_pending_of(organization_id: str, receiver: str) -> tuple[ColumnElement[bool], ...]:
    own = (OutboxMessage.organization_id == organization_id) & (OutboxMessage.receiver == receiver)
    return own, OutboxMessage.done_at.is_(None)


def _is_down(oldest: Any, now: datetime) -> bool:
    """Return whether a receiver is down, by its oldest pending message."""
    return oldest is not None and oldest.outcome in {FAILED, WAITING} and oldest.available_at > now


def refuse_pending(organization_id: str, receiver: str) -> None:
    """Refuse the pending messages of the receiver in the current transaction."""
    ids = _find_pending_ids(organization_id, receiver)
    for some in _pending_batches(organization_id, ids):
        count_changed(_UPDATE_BY_ID.where(some).values(done_at=clock.now(), outcome=REFUSED))


def _find_pending_ids(
    organization_id: str, receiver: str, *conditions: ColumnElement[bool]
) -> Sequence[UUID]:
    # An UPDATE by receiver would wait for messages that are being enqueued, and lock rows in another order than those
    # by id (deadlocks).
    statement = select(OutboxMessage.id).where(*_is_pending_of(organization_id, receiver), *conditions)
    return db.session.scalars(statement.order_by(OutboxMessage.id)).all()


def _pending_batches(organization_id: str, ids: Sequence[UUID]) -> Iterator[ColumnElement[bool]]:
    """Yield a condition for the pending messages of each batch of ids."""
    pending = (OutboxMessage.organization_id == organization_id) & OutboxMessage.done_at.is_(None)
    for start in range(0, len(ids), _BATCH):
        yield pending & OutboxMessage.id.in_(ids[start : start + _BATCH])


@transaction
def _postpone(message: Message) -> None:
    """Postpone the messages of the receiver, or only this one if a user sent it immediately."""
    now = clock.now()
    delay = retry_delay(message.attempts, _jitter.random())
    if is_for_external_server(message):
        oldest = _find_oldest_pending(message.organization_id, message.receiver)
        # One of many new messages: the first delays would be as many attempts.
        if oldest is not None and oldest.id != message.id and _is_down(oldest, now):
            delay = max(delay, _PROBE_INTERVAL)
    retry_at = now + delay
    has_failed = (OutboxMessage.id == message.id) | OutboxMessage.outcome.in_((FAILED, RETRYING))
    attempts = OutboxMessage.attempts
    values = {
        "available_at": case(
            (has_failed, _value("available_at", retry_at + _BEHIND)), else_=_value("available_at", retry_at)
        ),
        "attempts": case((attempts < message.attempts, message.attempts), else_=attempts),
        "outcome": case((has_failed, _value("outcome", FAILED)), else_=_value("outcome", WAITING)),
    }
    _reschedule(message, retry_at, values, only_this_message=message.is_immediate)


@transaction
def _defer(message: Message) -> None:
    """Postpone only this message."""
    retry_at = clock.now() + retry_delay(message.attempts, _jitter.random())
    _reschedule(message, retry_at, {"available_at": retry_at, "outcome": None}, only_this_message=True)


@transaction
def _pause(message: Message, pause: timedelta) -> None:
    """Let all messages of the receiver wait until the same time."""
    now = clock.now()
    # The next of fixed times, so that neither other workers nor new messages make those that wait wait longer.
    end = now + pause - (now - _EPOCH) % pause
    # The lease has counted this one.
    attempts = case((OutboxMessage.id == message.id, message.attempts - 1), else_=OutboxMessage.attempts)
    _reschedule(message, end, {"available_at": end, "attempts": attempts, "outcome": None})


def _reschedule(
    message: Message, retry_at: datetime, values: Mapping[str, Any], *, only_this_message: bool = False
) -> None:
    """Set the values of the receiver's messages that are due before, and give up those that would expire before.

    Messages that wait for longer already are not touched, so that each new one does not cost an update of all others.
    """
    is_due_before = OutboxMessage.available_at < retry_at
    is_immediate = OutboxMessage.outcome.is_not_distinct_from(IMMEDIATE)
    is_affected = (OutboxMessage.id == message.id) | (is_due_before & ~is_immediate)
    ids: Sequence[UUID] = [message.id]
    if not only_this_message:
        ids = _find_pending_ids(message.organization_id, message.receiver, is_affected)
    given_up = 0
    for some in _pending_batches(message.organization_id, ids):
        given_up += count_changed(
            _UPDATE_BY_ID.where(some, OutboxMessage.expires_at <= retry_at).values(
                done_at=clock.now(), outcome=GIVEN_UP
            )
        )
        count_changed(_UPDATE_BY_ID.where(some, is_affected).values(values))
    if given_up:
        actor = Actor.system(message.organization_id, "outbox")
        after = {"kind": message.kind, "messages": given_up}
        target = _deliveries[message.kind].receiver_type
        audit.record(actor, "delivery.given_up", target, message.receiver, after=after)
