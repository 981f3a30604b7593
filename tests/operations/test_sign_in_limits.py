"""What a storm of sign-ins is held by: counts per account and network, and places to hash that nobody has all of."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from sqlalchemy import func, insert, select

from app.extensions import db
from app.models.audit import AuditEvent
from app.models.session import Attempt
from app.operations import clock
from app.operations.people import attempts, passwords
from app.operations.people import sign_in as sign_in_module
from app.operations.people.attempts import Limit, bucket_of
from app.operations.people.sign_in import MOST_PER_ACCOUNT, MOST_PER_NETWORK, SignedIn, sign_in
from app.rules.errors import Unavailable
from app.rules.identifiers import new_id
from app.rules.people.lockout import Lockout
from tests.factories import PASSWORD

LOCKOUT = {"authentication": {"lockout": {"max_failures": 3, "delay_seconds": 60, "max_delay_seconds": 120}}}
WRONG = "not the password"
HERE, ELSEWHERE = "203.0.113.9", "198.51.100.7"
pytestmark = pytest.mark.usefixtures("context")


@pytest.fixture
def acme(make: Any) -> Any:
    return make.organization(settings=LOCKOUT)


@pytest.fixture
def ada(make: Any, acme: Any) -> Any:
    return make.user(acme, email="ada@acme.example")


def try_in(
    organization: Any, email: str = "ada@acme.example", password: str = WRONG, address: str = HERE
) -> Any:
    return sign_in(organization.id, email, password, address=address)


def fill(organization: Any, bucket: bytes, failures: int) -> None:
    """So many failures in the bucket, all of them now."""
    now = clock.now()
    row = {"organization_id": organization.id, "bucket": bucket, "at": now, "expires_at": now}
    with db.engine.begin() as connection:
        connection.execute(insert(Attempt), [row | {"id": new_id()} for _ in range(failures)])


def count(model: Any, *conditions: Any) -> int:
    found = db.session.scalar(select(func.count()).select_from(model).where(*conditions)) or 0
    db.session.remove()
    return found


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every password is wrong at once."""
    monkeypatch.setattr(sign_in_module, "verify_password", lambda *args, **place: (False, None))


@pytest.mark.usefixtures("quick")
def test_one_network_s_tries_at_many_accounts_are_counted_together(make: Any, acme: Any) -> None:
    """LK-2: one password for many accounts stays below every account's own bound."""
    for number in range(MOST_PER_NETWORK):
        assert try_in(acme, f"user{number}@acme.example").reason == "mismatch"
    assert try_in(acme, "one-more@acme.example").reason == "wait"
    assert try_in(acme, "one-more@acme.example", address=ELSEWHERE).reason == "mismatch"
    assert try_in(make.organization(), "one-more@acme.example").reason == "mismatch"


@pytest.mark.usefixtures("quick")
def test_many_networks_tries_at_one_account_are_counted_together(acme: Any) -> None:
    """LK-1, of an account that nobody has too (EN-1)."""
    for number in range(MOST_PER_ACCOUNT):
        assert try_in(acme, address=f"198.51.{number}.1").reason == "mismatch"
    assert try_in(acme, address="192.0.2.1").reason == "wait"
    assert try_in(acme, "bob@acme.example", address="192.0.2.1").reason == "mismatch"


def test_whoever_signed_in_from_the_network_before_passes_a_bound_of_the_account(acme: Any, ada: Any) -> None:
    assert isinstance(try_in(acme, password=PASSWORD), SignedIn)
    fill(acme, bucket_of("sign_in account", "ada@acme.example"), MOST_PER_ACCOUNT)
    assert try_in(acme, password=PASSWORD, address=ELSEWHERE).reason == "wait"
    assert isinstance(try_in(acme, password=PASSWORD), SignedIn)
    assert [try_in(acme).reason for _ in range(4)] == ["mismatch"] * 3 + ["wait"]


def test_a_success_takes_back_its_own_try_and_nobody_else_s(acme: Any, ada: Any) -> None:
    """Whoever owns one account must not set the count of the network back with it."""
    for number in range(3):
        try_in(acme, f"user{number}@acme.example")
    before = count(Attempt)
    assert isinstance(try_in(acme, password=PASSWORD), SignedIn)
    assert count(Attempt) == before


@pytest.mark.usefixtures("quick")
def test_beyond_a_bound_a_sample_alone_is_audited(acme: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lockout, "seconds_to_wait", lambda *args: 0)
    for _ in range(3 + 20):
        assert try_in(acme).reason == "mismatch"
    assert count(AuditEvent, AuditEvent.action == "sign_in.failed") == 3 + len([1, 2, 4, 8, 16])


@pytest.mark.mariadb
@pytest.mark.race
def test_guesses_at_once_are_counted_before_they_are_judged(acme: Any, app: Any) -> None:
    """Of forty at the same moment no more pass than of forty after each other."""
    ready, waits = threading.Barrier(40), []
    limit = Limit(bucket_of("sign_in", "ada"), Lockout.of(acme.settings))

    def claim() -> None:
        with app.app_context():
            ready.wait()
            waits.append(attempts.claim_attempt(acme.id, limit).wait)

    threads = [threading.Thread(target=claim) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(waits) == 40
    assert waits.count(0) <= 3
    assert count(Attempt, Attempt.organization_id == acme.id) == waits.count(0)


def test_waiting_two_seconds_for_a_place_to_hash_is_unavailable_and_no_try(
    acme: Any, ada: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PW-6: a storm of sign-ins is shed; it does not queue for ever."""
    monkeypatch.setattr(passwords, "LONGEST_WAIT_SECONDS", 0.05)
    monkeypatch.setattr(passwords, "_hashing", threading.BoundedSemaphore(1))
    with passwords._place_to_hash(), pytest.raises(Unavailable) as refusal:
        try_in(acme, password=PASSWORD)
    assert refusal.value.retry_after > 0
    assert count(Attempt) == 0


def test_beyond_a_short_queue_sign_ins_are_shed_at_once(
    acme: Any, ada: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passwords, "_queue", passwords._Queue(1))
    with passwords._place_to_hash(), pytest.raises(Unavailable):
        try_in(acme, password=PASSWORD)
    assert isinstance(try_in(acme, password=PASSWORD), SignedIn)


class Storm:
    """Threads that hold every place to hash that they get, until the end."""

    def __init__(self, holders: list[tuple[str, str]]) -> None:
        self._end, self._settled = threading.Event(), threading.Semaphore(0)
        self.got: list[bool] = []
        self._threads = [threading.Thread(target=self._hold, args=holder) for holder in holders]

    def _hold(self, organization_id: str, address: str) -> None:
        try:
            with passwords._place_to_hash(organization_id, address):
                self.got.append(True)
                self._settled.release()
                self._end.wait(20)
        except Unavailable:
            self.got.append(False)
            self._settled.release()

    def __enter__(self) -> Storm:
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
def test_a_storm_leaves_half_of_the_places_to_others(
    make: Any, acme: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """TN-14: the tenant next door signs in while the storm lasts."""
    monkeypatch.setattr(passwords, "_queue", passwords._Queue(6))
    monkeypatch.setattr(passwords, "_hashing", threading.BoundedSemaphore(6))
    globex = make.organization()
    bob = make.user(globex, email="bob@globex.example")
    if kind == "one organization's":
        holders = [(acme.id, f"192.0.{number}.1") for number in range(12)]
    else:
        holders = [(f"organization {number}", "192.0.2.1") for number in range(12)]
    with Storm(holders) as storm:
        assert sum(storm.got) == 3
        assert isinstance(try_in(globex, bob.email, PASSWORD), SignedIn)
    assert passwords._queue.take(["anybody"]) and not passwords._queue._held["network 192.0.2.0/24"]
