"""Outbox: committed messages are delivered at least once, and a dead receiver does not delay others (F22)."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import select, update

from app.extensions import db
from app.models.audit import OutboxMessage
from app.operations.maintenance import dispatcher
from app.operations.store import clock, outbox
from app.operations.store.outbox import DeliveryPaused, DeliveryRejected, DeliveryUnfinished, Message
from app.operations.store.outgoing_http import OutgoingRequestFailed
from app.operations.store.transactions import transaction
from tests.factories import Factory
from tests.support.cut_connections import cuttable
from tests.support.databases import Database

Rows = Callable[[], list[tuple[Any, ...]]]


class Receivers:
    """Receivers of messages of the kind ``test``; ``answers`` says what a receiver does with one."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.answers: dict[str, Callable[[], None]] = {}

    def __call__(self, message: Message) -> None:
        self.heard.append(message.receiver)
        self.answers.get(message.receiver, lambda: None)()


@pytest.fixture
def receivers(context: Flask, monkeypatch: pytest.MonkeyPatch) -> Receivers:
    made = Receivers()
    monkeypatch.setattr(outbox, "_deliveries", {})
    outbox.register_delivery("test", made)
    return made


@pytest.fixture
def rows(database: Database) -> Rows:
    return lambda: database.query(
        "SELECT CAST(receiver AS CHAR), attempts, CAST(outcome AS CHAR) FROM outbox ORDER BY id"
    )


def fail() -> None:
    raise OutgoingRequestFailed("no answer")


def stumble() -> None:
    raise ZeroDivisionError


def refuse() -> None:
    raise DeliveryRejected


@transaction
def put(organization: str, *receivers: str, kind: str = "test") -> None:
    for receiver in receivers:
        outbox.enqueue(organization, kind, {"n": 1}, receiver=receiver)


@transaction
def move(**values: Any) -> None:
    db.session.execute(update(OutboxMessage).values(**values))


def come_round() -> None:
    """Let all delays and leases expire."""
    move(available_at=clock.now() - timedelta(seconds=1))


def take() -> Message | None:
    return outbox.claim_due_message(busy_receivers=(), full_organizations=())


def deliver_due() -> int:
    """Deliver everything that is due, and return the number of attempts."""
    attempts = 0
    while (message := take()) is not None:
        outbox.deliver(message)
        attempts += 1
    return attempts


def test_message_is_delivered_after_commit(make: Factory, receivers: Receivers, rows: Rows) -> None:
    organization = make.organization().id
    outbox.messages_available.clear()
    put(organization, "one")
    assert outbox.messages_available.is_set(), "the dispatcher of this process looks at once"
    assert deliver_due() == 1
    assert (receivers.heard, rows()) == (["one"], [("one", 1, "delivered")])
    assert deliver_due() == 0


def test_rolled_back_message_is_not_delivered(make: Factory, receivers: Receivers, rows: Rows) -> None:
    @transaction
    def unit() -> None:
        outbox.enqueue(organization, "test", {}, receiver="one")
        raise OutgoingRequestFailed("changed my mind")

    organization = make.organization().id
    outbox.messages_available.clear()
    with pytest.raises(OutgoingRequestFailed):
        unit()
    assert rows() == [] and not outbox.messages_available.is_set()


def test_failed_delivery_is_retried_after_growing_delay(
    make: Factory, receivers: Receivers, rows: Rows, database: Database
) -> None:
    put(make.organization().id, "one")
    receivers.answers["one"] = fail
    for attempt in (1, 2, 3):
        assert deliver_due() == 1, "once, and not again before the retry delay"
        assert rows() == [("one", attempt, "failed")]
        come_round()
    receivers.answers.clear()
    assert deliver_due() == 1
    assert rows() == [("one", 4, "delivered")]


def test_rejected_delivery_is_not_retried(make: Factory, receivers: Receivers, rows: Rows) -> None:
    put(make.organization().id, "one")
    receivers.answers["one"] = refuse
    assert deliver_due() == 1
    come_round()
    assert (deliver_due(), rows()) == (0, [("one", 1, "refused")])


def test_unexpected_exception_is_retried(
    make: Factory, receivers: Receivers, rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    put(make.organization().id, "one")
    receivers.answers["one"] = stumble
    assert deliver_due() == 1
    assert rows() == [("one", 1, "failed")]
    assert "ZeroDivisionError" in caplog.text


def test_message_of_killed_worker_becomes_due_again(make: Factory, receivers: Receivers, rows: Rows) -> None:
    """F10: the lease expires by itself."""
    put(make.organization().id, "one")
    assert take() is not None
    assert take() is None, "never two at a time"
    come_round()
    assert deliver_due() == 1
    assert rows() == [("one", 2, "delivered")]


def test_concurrent_workers_claim_a_message_once(app: Flask, make: Factory, receivers: Receivers) -> None:
    put(make.organization().id, *("one",) * 3)
    taken: list[Message] = []
    gate = threading.Barrier(8)

    def run() -> None:
        with app.app_context():
            gate.wait()
            while (message := take()) is not None:
                taken.append(message)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == 3 and len({message.id for message in taken}) == 3


def test_dead_receiver_costs_one_attempt_per_delay(make: Factory, receivers: Receivers, rows: Rows) -> None:
    """Its messages wait together, and messages of other receivers do not wait."""
    organization = make.organization().id
    put(organization, *("dead",) * 30, "alive")
    receivers.answers["dead"] = fail
    assert deliver_due() == 2
    assert receivers.heard == ["dead", "alive"]
    assert [row for row in rows() if row[0] == "alive"] == [("alive", 1, "delivered")]


def test_new_message_to_a_dead_receiver_does_not_update_those_that_wait(
    make: Factory, receivers: Receivers, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    organization = make.organization().id
    put(organization, *["dead"] * 4)
    receivers.answers["dead"] = fail
    assert deliver_due() == 1
    move(available_at=clock.now() + timedelta(hours=1), attempts=9)
    put(organization, "dead")
    postponed: list[int] = []
    batches = outbox._pending_batches

    def count(organization_id: str, ids: Any) -> Any:
        postponed.append(len(ids))
        return batches(organization_id, ids)

    monkeypatch.setattr(outbox, "_pending_batches", count)
    assert deliver_due() == 1
    assert postponed == [1]
    assert [attempts for _, attempts, _ in rows()] == [9, 9, 9, 9, 1]


def test_pause_ends_for_all_messages_of_the_receiver_at_the_same_time(
    make: Factory, receivers: Receivers, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither another worker, a message that waits for longer nor a new one changes when it ends, or is an attempt."""
    organization = make.organization().id
    start = clock.now().replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)

    def pass_time(minutes: int) -> None:
        monkeypatch.setattr(clock, "now", lambda: start + timedelta(minutes=minutes))

    @transaction
    def waiting_until() -> list[timedelta]:
        found = select(OutboxMessage.available_at).where(OutboxMessage.organization_id == organization)
        return [at - start for at in db.session.scalars(found.order_by(OutboxMessage.id))]

    def pause() -> None:
        raise DeliveryPaused("the limit is reached", timedelta(minutes=5))

    receivers.answers["limited"] = pause
    pass_time(1)
    put(organization, "limited")
    move(available_at=start + timedelta(hours=3))
    put(organization, *["limited"] * 3)
    by_two_workers = [take(), take()]
    for message in by_two_workers:
        assert message is not None
        outbox.deliver(message)
    until = [timedelta(hours=3), *[timedelta(minutes=5)] * 3]
    assert waiting_until() == until
    pass_time(4)
    put(organization, "limited")
    assert deliver_due() == 1
    until.append(timedelta(minutes=5))
    assert waiting_until() == until
    pass_time(5)
    assert deliver_due() == 1
    assert waiting_until() == [timedelta(hours=3), *[timedelta(minutes=10)] * 4]
    assert rows() == [("limited", 0, None)] * 5
    assert outbox.count_waiting()["test"] == (5, None)


def test_external_server_that_is_down_gets_new_messages_once_a_minute(
    make: Factory, receivers: Receivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may fail at one message only: it is up as soon as it takes another."""
    outbox.register_delivery("test", receivers, to_external_server=True)
    monkeypatch.setattr(
        outbox, "retry_delay", lambda attempts, _: timedelta(seconds=10 * 2 ** (attempts - 1))
    )
    organization, start = make.organization().id, clock.now()

    def attempts_at(second: int, *names: str) -> int:
        monkeypatch.setattr(clock, "now", lambda: start + timedelta(seconds=second))
        put(organization, *names)
        return deliver_due()

    @transaction
    def waiting() -> list[int]:
        found = select(OutboxMessage.available_at).where(
            OutboxMessage.organization_id == organization, OutboxMessage.done_at.is_(None)
        )
        times = db.session.scalars(found.order_by(OutboxMessage.id))
        return [round((at - start).total_seconds()) for at in times]

    receivers.answers["dead"] = fail
    assert attempts_at(0, "dead") == 1
    assert attempts_at(1, "dead", "alive") == 1
    assert waiting() == [10, 10], "with the others"
    move(attempts=8, available_at=start + timedelta(seconds=1290))
    assert sum(attempts_at(second, "dead") for second in range(10, 310, 5)) == 4
    assert waiting()[:2] == [1290, 1290], "what failed before keeps its time"
    assert attempts_at(315) == 1
    before = waiting()
    for second in (320, 330):
        transaction(outbox.enqueue)(organization, "test", {}, receiver="dead", immediately=True)
        assert attempts_at(second) == 1
    assert waiting() == [*before, 380, 390], "what a user sends delays nothing"
    receivers.answers.clear()
    assert attempts_at(1000) == 63, "with the one that only waited"
    assert waiting() == [1290]
    assert attempts_at(1001, "dead") == 1, "it is up"
    transaction(outbox.enqueue)(organization, "test", {}, receiver="dead", immediately=True)
    assert attempts_at(1002) == 2, "what a user sends brings those that failed along"
    assert waiting() == []


@pytest.mark.either
@pytest.mark.parametrize("rejected", [{0}, {0, 1}, {1, 2}])
def test_messages_that_fail_do_not_keep_others_from_being_tried(
    make: Factory, receivers: Receivers, monkeypatch: pytest.MonkeyPatch, rejected: set[int]
) -> None:
    """The receiver may answer some with an error, always: the others were given up with them, untried."""
    accepted: set[int] = set()

    def receive(message: Message) -> None:
        if message.payload["n"] in rejected:
            fail()
        accepted.add(message.payload["n"])

    outbox.register_delivery("test", receive, to_external_server=True)
    organization, start = make.organization().id, clock.now()
    for second in range(300):
        monkeypatch.setattr(clock, "now", lambda at=start + timedelta(seconds=second): at)
        if second < 4:
            transaction(outbox.enqueue)(organization, "test", {"n": second}, receiver="one")
        deliver_due()
    assert accepted == {0, 1, 2, 3} - rejected


@pytest.mark.mariadb
def test_postponing_locks_messages_by_their_primary_key(
    app: Flask, make: Factory, receivers: Receivers, database: Database
) -> None:
    """Leasing one locks its row, and then its place among those that are due: the opposite order deadlocks."""
    put(make.organization().id, *("dead",) * 30)
    receivers.answers["dead"] = fail
    with cuttable(app) as cuts:
        cuts.start()
        assert deliver_due() == 1
    postponing = [sent for sent in cuts.sent if sent.startswith("UPDATE outbox") and " IN (" in sent]
    plans = [database.query("EXPLAIN FORMAT=TRADITIONAL " + sent.replace("%", "%%")) for sent in postponing]
    assert len(plans) == 2 and all({"range", "PRIMARY"} <= {*plan[0]} for plan in plans), plans


def test_messages_are_given_up_after_a_day(
    make: Factory, receivers: Receivers, rows: Rows, database: Database
) -> None:
    put(make.organization().id, "dead", "dead")
    receivers.answers["dead"] = fail
    move(expires_at=clock.now() + timedelta(seconds=1))
    assert deliver_due() == 1
    assert [outcome for *_, outcome in rows()] == ["given_up", "given_up"]
    [(action, target, after)] = database.query(
        "SELECT CAST(action AS CHAR), CAST(target_id AS CHAR), after FROM audit_events"
        " WHERE CAST(action AS CHAR) = 'delivery.given_up'"
    )
    assert (action, target) == ("delivery.given_up", "dead")
    assert '"messages":2' in after


def test_unfinished_work_goes_on_at_once_and_is_not_given_up(
    make: Factory, receivers: Receivers, rows: Rows
) -> None:
    parts = iter((True, True, False))

    def work() -> None:
        move(expires_at=clock.now() + timedelta(milliseconds=1))
        if next(parts):
            raise DeliveryUnfinished

    receivers.answers["long"] = work
    put(make.organization().id, "long")
    assert deliver_due() == 3
    assert [outcome for *_, outcome in rows()] == ["delivered"]


def test_unknown_kind_waits_for_newer_workers(make: Factory, receivers: Receivers, rows: Rows) -> None:
    """F16."""
    put(make.organization().id, "one", kind="from the future")
    assert deliver_due() == 0
    assert rows() == [("one", 0, None)]


@pytest.fixture
def dispatching(
    app: Flask, receivers: Receivers, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], None]]:
    """Start the dispatcher's threads as in a worker, and stop them after the test."""
    monkeypatch.setattr(dispatcher, "POLL_INTERVAL_SECONDS", 0.05)
    shared, end = dispatcher.Dispatcher(), threading.Event()

    def run() -> None:
        while not end.is_set():
            with app.app_context():
                shared.deliver_next()

    threads = [threading.Thread(target=run, daemon=True) for _ in range(dispatcher.THREADS)]

    def begin() -> None:
        for thread in threads:
            thread.start()

    yield begin
    end.set()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 8
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.01)


def test_slow_receiver_and_full_organization_do_not_delay_others(
    make: Factory, receivers: Receivers, dispatching: Callable[[], None]
) -> None:
    """SF-4: one delivery per receiver and two per organization, so the third thread serves others."""
    crowded, other = make.organization().id, make.organization().id
    put(crowded, "slow-1", "slow-1", "slow-2", "slow-2", "slow-3")
    put(other, "quick-1", "quick-2", "quick-1")
    end = threading.Event()
    for name in ("slow-1", "slow-2", "slow-3"):
        receivers.answers[name] = lambda: None if end.wait(8) else fail()
    dispatching()
    until(lambda: sum(name.startswith("quick") for name in receivers.heard) == 3)
    slow = [name for name in receivers.heard if name.startswith("slow")]
    assert len(slow) == 2 and len(set(slow)) == 2
    end.set()
    until(lambda: len(receivers.heard) == 8)


def test_thread_beside_a_busy_receiver_looks_once(
    make: Factory, receivers: Receivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backlog of one receiver would be read after each of its deliveries."""
    organization, shared, searches = make.organization().id, dispatcher.Dispatcher(), 0
    find_due = outbox._find_due

    def count(*skipped: Any) -> list[Message]:
        nonlocal searches
        searches += 1
        return find_due(*skipped)

    monkeypatch.setattr(outbox, "_find_due", count)
    put(organization, *("busy",) * 4)
    for number in range(4):
        message = shared._claim()
        assert message is not None and shared._claim() is None
        assert searches == number + 2, "one for the message, and one beside it in all"
        outbox.deliver(message)
        shared._release(message)
    put(organization, "busy", "other")
    assert [shared._claim().receiver for _ in range(2)] == ["busy", "other"]  # type: ignore[union-attr]


def test_each_poll_looks_for_messages_of_other_machines(
    make: Factory, receivers: Receivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    organization, signal = make.organization().id, outbox.messages_available
    monkeypatch.setattr(dispatcher, "is_lead", lambda: True)
    monkeypatch.setattr(random, "uniform", lambda *_: 0.01)
    polling, commits = dispatcher.Dispatcher(), signal.commits
    assert not polling.deliver_next()
    put(organization, "other")
    signal.commits = commits
    signal.clear()
    assert polling.deliver_next()


def test_slow_external_servers_do_not_delay_email(
    make: Factory, receivers: Receivers, dispatching: Callable[[], None]
) -> None:
    """P2: one thread is reserved for messages that do not go to external servers."""
    outbox.register_delivery("stranger", receivers, to_external_server=True)
    end = threading.Event()
    for name in ("slow-1", "slow-2", "slow-3", "slow-4"):
        receivers.answers[name] = lambda: None if end.wait(8) else fail()
        put(make.organization().id, name, kind="stranger")
    put(make.organization().id, "mail")
    dispatching()
    until(lambda: "mail" in receivers.heard)
    assert sum(name.startswith("slow") for name in receivers.heard) <= dispatcher.THREADS - 1
    end.set()
    until(lambda: len(receivers.heard) == 5)


def test_receiver_busy_for_one_organization_is_free_for_another(make: Factory, receivers: Receivers) -> None:
    """TN-9: the same receiver id in another organization is another receiver."""
    ours, theirs = make.organization().id, make.organization().id
    put(ours, "one")
    put(theirs, "one")
    taken = outbox.claim_due_message(busy_receivers={(ours, "one")}, full_organizations=())
    assert taken is not None and taken.organization_id == theirs
    assert outbox.claim_due_message(busy_receivers={(ours, "one")}, full_organizations=()) is None
