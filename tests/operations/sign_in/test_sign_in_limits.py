"""Limits on password guesses: per account, network and organization."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, insert, select, update

from app.extensions import db
from app.models.audit import AuditEvent
from app.models.session import Attempt
from app.operations.sign_in import password_sign_in, passwords
from app.operations.sign_in.password_sign_in import sign_in
from app.operations.sign_in.sign_in import Browser, SignedIn
from app.operations.sign_in.sign_in_limits import (
    MAX_FAILURES_PER_ACCOUNT,
    MAX_FAILURES_PER_NETWORK,
    MAX_FAILURES_PER_ORGANIZATION,
)
from app.operations.store import clock, rate_limits
from app.operations.store.rate_limits import Limit, bucket_key
from app.rules.identifiers import new_id
from app.rules.sign_in.passwords import IPV6_SITE_FACTOR, Lockout
from tests.factories import PASSWORD
from tests.support.applications import BASE_URL, environment
from tests.support.databases import Database

LOCKOUT = {"authentication": {"lockout": {"max_failures": 3, "delay_seconds": 60, "max_delay_seconds": 120}}}
WRONG = "not the password"
HERE, ELSEWHERE = "203.0.113.9", "198.51.100.7"
ROOT = Path(__file__).parents[3]
_ANOTHER = """
import sys
from app import create_app
from app.operations.sign_in.password_sign_in import sign_in

with create_app().app_context():
    print(sign_in(sys.argv[1], "ada@acme.example", "x", ip_address=sys.argv[2]).reason)
"""
pytestmark = pytest.mark.usefixtures("context")


@pytest.fixture
def acme(make: Any) -> Any:
    return make.organization(settings=LOCKOUT)


def attempt_sign_in(
    organization: Any,
    email: str = "ada@acme.example",
    password: str = WRONG,
    ip_address: str = HERE,
    known_cookie: str = "",
) -> Any:
    return sign_in(
        organization.id, email, password, ip_address=ip_address, browser=Browser(known_cookie=known_cookie)
    )


def record_failures(organization: Any, bucket: bytes, failures: int) -> None:
    """Record so many failures in the bucket, all at the current time."""
    now = clock.now()
    row = {"organization_id": organization.id, "bucket": bucket, "at": now, "expires_at": now}
    with db.engine.begin() as connection:
        connection.execute(insert(Attempt), [row | {"id": new_id()} for _ in range(failures)])


def _move_attempts_back(time: timedelta) -> None:
    """Move earlier attempts into the past."""
    with db.engine.begin() as connection:
        for row in connection.execute(select(Attempt.id, Attempt.at)).all():
            connection.execute(update(Attempt).where(Attempt.id == row.id).values(at=row.at - time))


def count(model: Any, *conditions: Any) -> int:
    found = db.session.scalar(select(func.count()).select_from(model).where(*conditions)) or 0
    db.session.remove()
    return found


@pytest.fixture
def skip_hashing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reject every password without hashing."""
    monkeypatch.setattr(password_sign_in, "verify_password", lambda *args, **place: (False, None))


@pytest.mark.usefixtures("skip_hashing")
def test_attempts_of_one_network_at_many_accounts_count_together(make: Any, acme: Any) -> None:
    """LK-2: trying one password on many accounts stays below every account's own limit."""
    for number in range(MAX_FAILURES_PER_NETWORK):
        assert attempt_sign_in(acme, f"user{number}@acme.example").reason == "mismatch"
    assert attempt_sign_in(acme, "one-more@acme.example").reason == "wait"
    assert attempt_sign_in(acme, "one-more@acme.example", ip_address=ELSEWHERE).reason == "mismatch"
    assert attempt_sign_in(make.organization(), "one-more@acme.example").reason == "mismatch"


@pytest.mark.usefixtures("skip_hashing")
def test_ipv6_networks_of_one_site_count_together(acme: Any) -> None:
    """LK-1, LK-2: an IPv6 /48 has a limit too, which is higher. Other sites are not affected."""
    most = 3 * IPV6_SITE_FACTOR
    reasons = [
        attempt_sign_in(acme, ip_address=f"2001:db8:7:{number:x}::1").reason for number in range(most + 1)
    ]
    assert reasons == ["mismatch"] * most + ["wait"]
    assert attempt_sign_in(acme, ip_address="2001:db8:8::1").reason == "mismatch"


@pytest.mark.usefixtures("skip_hashing")
def test_attempts_of_many_networks_at_one_account_count_together(acme: Any) -> None:
    """LK-1: also for an account that does not exist (EN-1)."""
    for number in range(MAX_FAILURES_PER_ACCOUNT):
        assert attempt_sign_in(acme, ip_address=f"198.51.{number}.1").reason == "mismatch"
    assert attempt_sign_in(acme, ip_address="192.0.2.1").reason == "capped"
    assert attempt_sign_in(acme, "bob@acme.example", ip_address="192.0.2.1").reason == "mismatch"


def test_waiting_does_not_lift_the_account_cap(acme: Any, ada: Any) -> None:
    """LK-1: a hard cap. The owner's sign-in from a known browser or a new password lifts it."""
    known = attempt_sign_in(acme, password=PASSWORD).known_cookie
    record_failures(acme, bucket_key("sign_in account", "ada@acme.example"), MAX_FAILURES_PER_ACCOUNT)
    _move_attempts_back(timedelta(days=29))
    assert attempt_sign_in(acme, password=PASSWORD, ip_address=ELSEWHERE).reason == "capped"
    assert isinstance(
        attempt_sign_in(acme, password=PASSWORD, ip_address=ELSEWHERE, known_cookie=known), SignedIn
    )
    assert isinstance(attempt_sign_in(acme, password=PASSWORD, ip_address="192.0.2.1"), SignedIn)


def test_account_cap_ends_after_a_month(acme: Any, ada: Any) -> None:
    record_failures(acme, bucket_key("sign_in account", "ada@acme.example"), MAX_FAILURES_PER_ACCOUNT)
    _move_attempts_back(timedelta(days=31))
    assert isinstance(attempt_sign_in(acme, password=PASSWORD), SignedIn)


def test_each_limit_has_its_own_window(acme: Any, ada: Any) -> None:
    """The account's monthly cap does not extend the network's fifteen minutes."""
    for _ in range(3):
        attempt_sign_in(acme)
    _move_attempts_back(timedelta(minutes=16))
    assert attempt_sign_in(acme).attempts_left == 2


def test_known_browser_has_its_own_counter(acme: Any, ada: Any) -> None:
    """LK-1: it is not affected by other failures, and its own wait affects no one else."""
    known = attempt_sign_in(acme, password=PASSWORD).known_cookie
    record_failures(acme, bucket_key("sign_in account", "ada@acme.example"), MAX_FAILURES_PER_ACCOUNT)
    assert [attempt_sign_in(acme, known_cookie=known).reason for _ in range(4)] == ["mismatch"] * 3 + ["wait"]
    assert attempt_sign_in(acme, password=PASSWORD, known_cookie=known).retry_after > 0
    _move_attempts_back(timedelta(seconds=65))
    assert isinstance(attempt_sign_in(acme, password=PASSWORD, known_cookie=known), SignedIn)


@pytest.mark.parametrize(
    "known", ["", "x", "..", "gth_kb_00000000" + "A" * 43 + "00000000", "\x00", "y" * 5000]
)
def test_invalid_cookie_is_an_unknown_browser(acme: Any, ada: Any, known: str) -> None:
    record_failures(acme, bucket_key("sign_in account", "ada@acme.example"), MAX_FAILURES_PER_ACCOUNT)
    assert attempt_sign_in(acme, password=PASSWORD, known_cookie=known).reason == "capped"


def test_known_browser_of_another_user_is_unknown(make: Any, acme: Any, ada: Any) -> None:
    """LK-1: neither another user's in the organization, nor the same email's in another organization."""
    bob = make.user(acme, email="bob@acme.example")
    globex = make.organization()
    make.user(globex, email="ada@acme.example")
    for known in (
        attempt_sign_in(acme, bob.email, PASSWORD).known_cookie,
        sign_in(globex.id, "ada@acme.example", PASSWORD).known_cookie,
    ):
        record_failures(acme, bucket_key("sign_in account", "ada@acme.example"), MAX_FAILURES_PER_ACCOUNT)
        assert attempt_sign_in(acme, password=PASSWORD, known_cookie=known).reason == "capped"


@pytest.mark.usefixtures("skip_hashing")
@pytest.mark.either
@pytest.mark.slow
def test_owner_signs_in_during_two_thousand_failures(
    acme: Any, ada: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LK-1, LK-2: only a hundred are verified, and the owner's known browser does not wait."""
    with monkeypatch.context() as patch:
        patch.setattr(password_sign_in, "verify_password", passwords.verify_password)
        known = attempt_sign_in(acme, password=PASSWORD).known_cookie
    tried = Counter(
        attempt_sign_in(acme, ip_address=f"198.51.{number % 10}.{number // 10 % 250}").reason
        for number in range(2000)
    )
    assert tried["mismatch"] <= MAX_FAILURES_PER_ACCOUNT and sum(tried.values()) == 2000
    monkeypatch.undo()
    assert isinstance(
        attempt_sign_in(acme, password=PASSWORD, ip_address="192.0.2.1", known_cookie=known), SignedIn
    )


@pytest.mark.usefixtures("skip_hashing")
def test_attempts_of_many_networks_at_many_accounts_use_the_organization_limit(
    make: Any, acme: Any, ada: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LK-2: stolen passwords, each tried once from a different network.

    TN-14: other tenants are not affected.
    """
    with monkeypatch.context() as patch:
        patch.setattr(password_sign_in, "verify_password", passwords.verify_password)
        known = attempt_sign_in(acme, password=PASSWORD).known_cookie
    record_failures(acme, bucket_key("sign_in organization"), MAX_FAILURES_PER_ORGANIZATION)
    refused = attempt_sign_in(acme, "stolen@acme.example", ip_address="192.0.2.1")
    assert refused.reason == "wait" and 0 < refused.retry_after <= 60
    assert (
        attempt_sign_in(make.organization(), "stolen@acme.example", ip_address="192.0.2.1").reason
        == "mismatch"
    )
    monkeypatch.undo()
    assert isinstance(
        attempt_sign_in(acme, password=PASSWORD, ip_address="192.0.2.2", known_cookie=known), SignedIn
    )
    _move_attempts_back(timedelta(seconds=61))
    assert attempt_sign_in(acme, "stolen@acme.example", ip_address="192.0.2.1").reason == "mismatch"


@pytest.mark.slow
@pytest.mark.either
def test_counters_survive_a_restart(acme: Any, ada: Any, database: Database, instance: Path) -> None:
    """RL-2, LK-2: another process sees this one's failures, because the counters are not in memory."""
    for _ in range(3):
        attempt_sign_in(acme)
    answer = subprocess.run(
        [sys.executable, "-c", _ANOTHER, acme.id, HERE],
        cwd=ROOT,
        env=environment(database, instance, BASE_URL),
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.strip() == "wait"


def test_success_releases_only_its_own_attempt(acme: Any, ada: Any) -> None:
    """The owner of one account must not be able to reset the network's counter with it."""
    for number in range(3):
        attempt_sign_in(acme, f"user{number}@acme.example")
    before = count(Attempt)
    assert isinstance(attempt_sign_in(acme, password=PASSWORD), SignedIn)
    assert count(Attempt) == before


@pytest.mark.usefixtures("skip_hashing")
def test_failures_beyond_the_limit_are_sampled_in_the_audit_log(
    acme: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Lockout, "seconds_to_wait", lambda *args: 0)
    for _ in range(3 + 20):
        assert attempt_sign_in(acme).reason == "mismatch"
    assert count(AuditEvent, AuditEvent.action == "sign_in.failed") == 3 + len([1, 2, 4, 8, 16])


@pytest.mark.mariadb
@pytest.mark.race
def test_concurrent_guesses_are_counted_before_verification(acme: Any, app: Any) -> None:
    """Of forty concurrent guesses no more are verified than of forty sequential ones."""
    ready, waits = threading.Barrier(40), []
    limit = Limit(bucket_key("sign_in", "ada"), Lockout.of(acme.settings))

    def claim() -> None:
        with app.app_context():
            ready.wait()
            waits.append(rate_limits.record_attempt(acme.id, limit).retry_after)

    threads = [threading.Thread(target=claim) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(waits) == 40
    assert waits.count(0) <= 3
    assert count(Attempt, Attempt.organization_id == acme.id) == waits.count(0)
