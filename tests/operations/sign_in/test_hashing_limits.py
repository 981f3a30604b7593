"""Password hashing limits: one hash per core, a short queue, and no holder may fill it (PW-6, TN-14)."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest
from sqlalchemy import func, select

from app.circuit_breaker import Turns
from app.extensions import db
from app.models.session import Attempt
from app.operations.sign_in import passwords
from app.operations.sign_in.password_sign_in import sign_in
from app.operations.sign_in.sign_in import SignedIn
from app.rules.errors import Unavailable
from app.rules.sign_in import imported_hashes
from app.rules.sign_in.passwords import hash_password
from tests.factories import PASSWORD
from tests.support.cases import each
from tests.support.process import wait_until

pytestmark = pytest.mark.usefixtures("context")


@pytest.fixture
def acme(make: Any) -> Any:
    return make.organization()


def attempt_sign_in(organization: Any, email: str = "ada@acme.example", password: str = PASSWORD) -> Any:
    return sign_in(organization.id, email, password, ip_address="203.0.113.9")


def test_hashing_timeout_is_unavailable_and_not_counted(
    acme: Any, ada: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PW-6: a flood of sign-ins is rejected instead of queued indefinitely."""
    monkeypatch.setattr(passwords, "MAX_WAIT_SECONDS", 0.05)
    monkeypatch.setattr(passwords, "_hashing", Turns(1))
    with passwords._hashing_slot(), pytest.raises(Unavailable) as refusal:
        attempt_sign_in(acme)
    assert refusal.value.retry_after > 0
    assert db.session.scalar(select(func.count()).select_from(Attempt)) == 0


def test_sign_in_beyond_the_queue_is_rejected_at_once(
    acme: Any, ada: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passwords, "_queue", passwords._HashingQueue(1))
    with passwords._hashing_slot(), pytest.raises(Unavailable):
        attempt_sign_in(acme)
    assert isinstance(attempt_sign_in(acme), SignedIn)


@pytest.mark.usefixtures("real_hashes")
def test_office_of_eight_waits_and_is_not_refused(
    app: Any, make: Any, acme: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They begin their day in one network, and one worker process gets all of their sign-ins."""
    # On a busy machine eight hashes take longer than people should wait; that nobody is turned away is tested here.
    monkeypatch.setattr(passwords, "MAX_WAIT_SECONDS", 60.0)
    users = [make.user(acme, email=f"user{number}@acme.example") for number in range(8)]
    begin, outcomes = threading.Barrier(8), []

    def sign_in_with_the_others(email: str) -> None:
        with app.app_context():
            begin.wait(20)
            try:
                outcomes.append(type(attempt_sign_in(acme, email)))
            except Unavailable:
                outcomes.append(Unavailable)

    threads = [threading.Thread(target=sign_in_with_the_others, args=[user.email]) for user in users]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [SignedIn] * 8


class Flood:
    """Threads that occupy every slot they get until the end."""

    def __init__(self, holders: list[tuple[str, str]]) -> None:
        self._end, self._settled = threading.Event(), threading.Semaphore(0)
        self.got: list[bool] = []
        self._threads = [threading.Thread(target=self._hold, args=holder) for holder in holders]

    def _hold(self, organization_id: str, address: str) -> None:
        try:
            with passwords._hashing_slot(organization_id, address):
                self.got.append(True)
                self._settled.release()
                self._end.wait(20)
        except Unavailable:
            self.got.append(False)
            self._settled.release()

    def __enter__(self) -> Flood:
        for thread in self._threads:
            thread.start()
        for _ in self._threads:
            assert self._settled.acquire(timeout=20)
        return self

    def __exit__(self, *exc: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()


@pytest.mark.parametrize("kind", ["one organization's", "one network's"])
def test_flood_leaves_half_of_the_slots_to_others(
    make: Any, acme: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """TN-14: another tenant's user signs in during the flood."""
    monkeypatch.setattr(passwords, "_queue", passwords._HashingQueue(6))
    monkeypatch.setattr(passwords, "_hashing", Turns(6))
    globex = make.organization()
    bob = make.user(globex, email="bob@globex.example")
    if kind == "one organization's":
        holders = [(acme.id, f"192.0.{number}.1") for number in range(12)]
    else:
        holders = [(f"organization {number}", "192.0.2.1") for number in range(12)]
    with Flood(holders) as flood:
        assert sum(flood.got) == 3
        assert isinstance(attempt_sign_in(globex, bob.email, PASSWORD), SignedIn)
    assert passwords._queue.acquire([("anybody", "")]) and not passwords._queue._held["", "192.0.2.0/24"]


def test_turn_of_another_organization_comes_before_the_rest_of_a_flood(
    make: Any, acme: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TN-14: an organization may import hashes that take a second each, and fill its half of the queue with them."""
    monkeypatch.setattr(passwords, "MAX_WAIT_SECONDS", 60.0)
    monkeypatch.setattr(passwords, "_queue", passwords._HashingQueue(12))
    monkeypatch.setattr(passwords, "_hashing", Turns(1))
    globex, served = make.organization(), []

    def hash_a_password(organization: Any) -> None:
        with passwords._hashing_slot(organization.id):
            served.append(organization.slug)

    def is_waiting(number: int) -> bool:
        return passwords._hashing.waiting == number

    order = [acme, acme, acme, globex, globex]
    threads = [threading.Thread(target=hash_a_password, args=[one]) for one in order]
    with passwords._hashing_slot(acme.id):
        for number, thread in enumerate(threads, 1):
            thread.start()
            wait_until(partial(is_waiting, number), "the thread waits for its turn")
    for thread in threads:
        thread.join()
    assert served == [one.slug for one in (globex, acme, globex, acme, acme)]


@each("stored", ["imported", "own", None])
def test_attempts_where_hashes_are_expensive_leave_a_core_to_others(
    make: Any, acme: Any, monkeypatch: pytest.MonkeyPatch, stored: str | None
) -> None:
    """TN-14, EN-1: the organization decides, not the account, so that a refusal tells nothing about it."""
    own = hash_password(PASSWORD)
    hashes = {"imported": imported_hashes.dummy_imported_hash("pbkdf2-sha256 1000"), "own": own}
    monkeypatch.setattr(passwords, "MAX_WAIT_SECONDS", 0.05)
    monkeypatch.setattr(passwords, "_hashing", Turns(2))
    monkeypatch.setattr(passwords, "_expensive", Turns(1))
    monkeypatch.setattr(
        passwords, "list_password_schemes", lambda id_: ("pbkdf2-sha256 1000",) if id_ == acme.id else ()
    )
    other = make.organization()
    assert passwords.verify_password(None, "wrong", organization_id=acme.id) == (False, None)
    with passwords._hashing_slot(acme.id, is_expensive=True):
        with pytest.raises(Unavailable):
            passwords.verify_password(stored and hashes[stored], PASSWORD, organization_id=acme.id)
        assert passwords.verify_password(None, PASSWORD, organization_id=other.id) == (False, None)
    assert (passwords._hashing.taken, passwords._expensive.taken) == (0, 0)
