"""What a storm of sign-ins is held by: counts per account and network, and places to hash that nobody has all of."""

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
from app.operations.sign_in import passwords
from app.operations.sign_in import sign_in as sign_in_module
from app.operations.sign_in.sign_in import SignedIn, sign_in
from app.operations.sign_in.sign_in_limits import (
    MAX_FAILURES_PER_ACCOUNT,
    MAX_FAILURES_PER_NETWORK,
    MAX_FAILURES_PER_ORGANIZATION,
)
from app.operations.store import clock, rate_limits
from app.operations.store.rate_limits import Limit, bucket_key
from app.rules.identifiers import new_id
from app.rules.sign_in.lockout import IPV6_SITE_FACTOR, Lockout
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
from app.operations.sign_in.sign_in import sign_in

with create_app().app_context():
    print(sign_in(sys.argv[1], "ada@acme.example", "x", address=sys.argv[2]).reason)
"""
pytestmark = pytest.mark.usefixtures("context")


@pytest.fixture
def acme(make: Any) -> Any:
    return make.organization(settings=LOCKOUT)


@pytest.fixture
def ada(make: Any, acme: Any) -> Any:
    return make.user(acme, email="ada@acme.example")


def try_in(
    organization: Any,
    email: str = "ada@acme.example",
    password: str = WRONG,
    address: str = HERE,
    known: str = "",
) -> Any:
    return sign_in(organization.id, email, password, address=address, known=known)


def fill(organization: Any, bucket: bytes, failures: int) -> None:
    """So many failures in the bucket, all of them now."""
    now = clock.now()
    row = {"organization_id": organization.id, "bucket": bucket, "at": now, "expires_at": now}
    with db.engine.begin() as connection:
        connection.execute(insert(Attempt), [row | {"id": new_id()} for _ in range(failures)])


def _let_pass(time: timedelta) -> None:
    """Earlier attempts lie so much further back."""
    with db.engine.begin() as connection:
        for row in connection.execute(select(Attempt.id, Attempt.at)).all():
            connection.execute(update(Attempt).where(Attempt.id == row.id).values(at=row.at - time))


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
    for number in range(MAX_FAILURES_PER_NETWORK):
        assert try_in(acme, f"user{number}@acme.example").reason == "mismatch"
    assert try_in(acme, "one-more@acme.example").reason == "wait"
    assert try_in(acme, "one-more@acme.example", address=ELSEWHERE).reason == "mismatch"
    assert try_in(make.organization(), "one-more@acme.example").reason == "mismatch"


@pytest.mark.usefixtures("quick")
def test_a_customer_s_many_networks_are_counted_together(acme: Any) -> None:
    """LK-1, LK-2: of an IPv6 address the /48 counts too, with more let through; who has another one goes on."""
    most = 3 * IPV6_SITE_FACTOR
    reasons = [try_in(acme, address=f"2001:db8:7:{number:x}::1").reason for number in range(most + 1)]
    assert reasons == ["mismatch"] * most + ["wait"]
    assert try_in(acme, address="2001:db8:8::1").reason == "mismatch"


@pytest.mark.usefixtures("quick")
def test_many_networks_tries_at_one_account_are_counted_together(acme: Any) -> None:
    """LK-1, of an account that nobody has too (EN-1)."""
    for number in range(MAX_FAILURES_PER_ACCOUNT):
        assert try_in(acme, address=f"198.51.{number}.1").reason == "mismatch"
    assert try_in(acme, address="192.0.2.1").reason == "capped"
    assert try_in(acme, "bob@acme.example", address="192.0.2.1").reason == "mismatch"


def test_patience_does_not_pass_the_bound_of_an_account(acme: Any, ada: Any) -> None:
    """LK-1: a hard cap; the owner's sign-in from a known browser, or a new password, is what ends it."""
    known = try_in(acme, password=PASSWORD).known
    fill(acme, bucket_key("sign_in account", "ada@acme.example"), MAX_FAILURES_PER_ACCOUNT)
    _let_pass(timedelta(days=29))
    assert try_in(acme, password=PASSWORD, address=ELSEWHERE).reason == "capped"
    assert isinstance(try_in(acme, password=PASSWORD, address=ELSEWHERE, known=known), SignedIn)
    assert isinstance(try_in(acme, password=PASSWORD, address="192.0.2.1"), SignedIn)


def test_after_a_month_the_bound_of_an_account_is_free_again(acme: Any, ada: Any) -> None:
    fill(acme, bucket_key("sign_in account", "ada@acme.example"), MAX_FAILURES_PER_ACCOUNT)
    _let_pass(timedelta(days=31))
    assert isinstance(try_in(acme, password=PASSWORD), SignedIn)


def test_what_is_counted_is_counted_within_its_own_window(acme: Any, ada: Any) -> None:
    """The month of the account's bound does not make the quarter of an hour of a network longer."""
    for _ in range(3):
        try_in(acme)
    _let_pass(timedelta(minutes=16))
    assert try_in(acme).attempts_left == 2


def test_a_known_browser_is_counted_by_itself(acme: Any, ada: Any) -> None:
    """LK-1: it passes what others filled, and its own wait doubles and stops nobody else."""
    known = try_in(acme, password=PASSWORD).known
    fill(acme, bucket_key("sign_in account", "ada@acme.example"), MAX_FAILURES_PER_ACCOUNT)
    assert [try_in(acme, known=known).reason for _ in range(4)] == ["mismatch"] * 3 + ["wait"]
    assert try_in(acme, password=PASSWORD, known=known).retry_after > 0
    _let_pass(timedelta(seconds=65))
    assert isinstance(try_in(acme, password=PASSWORD, known=known), SignedIn)


@pytest.mark.parametrize(
    "known", ["", "x", "..", "gth_kb_00000000" + "A" * 43 + "00000000", "\x00", "y" * 5000]
)
def test_a_cookie_that_is_nothing_is_an_unknown_browser(acme: Any, ada: Any, known: str) -> None:
    fill(acme, bucket_key("sign_in account", "ada@acme.example"), MAX_FAILURES_PER_ACCOUNT)
    assert try_in(acme, password=PASSWORD, known=known).reason == "capped"


def test_another_s_known_browser_is_none_of_ours(make: Any, acme: Any, ada: Any) -> None:
    """LK-1: neither another person's of the organization, nor the same address's of another."""
    bob = make.user(acme, email="bob@acme.example")
    globex = make.organization()
    make.user(globex, email="ada@acme.example")
    for known in (
        try_in(acme, bob.email, PASSWORD).known,
        sign_in(globex.id, "ada@acme.example", PASSWORD).known,
    ):
        fill(acme, bucket_key("sign_in account", "ada@acme.example"), MAX_FAILURES_PER_ACCOUNT)
        assert try_in(acme, password=PASSWORD, known=known).reason == "capped"


@pytest.mark.usefixtures("quick")
@pytest.mark.either
def test_ten_thousand_wrong_tries_from_ten_networks_and_the_owner_is_in_at_once(
    acme: Any, ada: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LK-1, LK-2: through the operation; a hundred of them are looked at, and the owner's browser does not wait."""
    with monkeypatch.context() as patch:
        patch.setattr(sign_in_module, "verify_password", passwords.verify_password)
        known = try_in(acme, password=PASSWORD).known
    tried = Counter(
        try_in(acme, address=f"198.51.{number % 10}.{number // 10 % 250}").reason for number in range(10_000)
    )
    assert tried["mismatch"] <= MAX_FAILURES_PER_ACCOUNT and sum(tried.values()) == 10_000
    monkeypatch.undo()
    assert isinstance(try_in(acme, password=PASSWORD, address="192.0.2.1", known=known), SignedIn)


@pytest.mark.usefixtures("quick")
def test_many_networks_tries_at_many_accounts_spend_the_budget_of_the_organization(
    make: Any, acme: Any, ada: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LK-2: stolen passwords, each tried once from a network of its own. TN-14: the tenant next door is as it was."""
    with monkeypatch.context() as patch:
        patch.setattr(sign_in_module, "verify_password", passwords.verify_password)
        known = try_in(acme, password=PASSWORD).known
    fill(acme, bucket_key("sign_in organization"), MAX_FAILURES_PER_ORGANIZATION)
    refused = try_in(acme, "stolen@acme.example", address="192.0.2.1")
    assert refused.reason == "wait" and 0 < refused.retry_after <= 60
    assert try_in(make.organization(), "stolen@acme.example", address="192.0.2.1").reason == "mismatch"
    monkeypatch.undo()
    assert isinstance(try_in(acme, password=PASSWORD, address="192.0.2.2", known=known), SignedIn)
    _let_pass(timedelta(seconds=61))
    assert try_in(acme, "stolen@acme.example", address="192.0.2.1").reason == "mismatch"


def test_counts_survive_a_restart(acme: Any, ada: Any, database: Database, instance: Path) -> None:
    """RL-2, LK-2: another process knows of the failures of this one, because no memory of it holds any."""
    for _ in range(3):
        try_in(acme)
    answer = subprocess.run(
        [sys.executable, "-c", _ANOTHER, acme.id, HERE],
        cwd=ROOT,
        env=environment(database, instance, BASE_URL),
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.strip() == "wait"


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
    limit = Limit(bucket_key("sign_in", "ada"), Lockout.of(acme.settings))

    def claim() -> None:
        with app.app_context():
            ready.wait()
            waits.append(rate_limits.record_attempt(acme.id, limit).wait)

    threads = [threading.Thread(target=claim) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(waits) == 40
    assert waits.count(0) <= 3
    assert count(Attempt, Attempt.organization_id == acme.id) == waits.count(0)
