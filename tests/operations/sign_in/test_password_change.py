"""Changing one's password: it requires the current one and ends other sessions."""

from __future__ import annotations

from typing import Any

import pytest
from argon2 import PasswordHasher
from msgspec.structs import replace
from sqlalchemy import select, update

from app.extensions import db
from app.models.audit import AuditEvent
from app.models.user import User
from app.operations.sign_in import passwords
from app.operations.sign_in.password_sign_in import sign_in
from app.operations.sign_in.passwords import change_password
from app.operations.sign_in.sessions import find_session
from app.operations.sign_in.sign_in import SignedIn
from app.operations.sign_in.sign_in_limits import MAX_FAILURES_PER_ACCOUNT
from app.operations.store.transactions import transaction
from app.rules.errors import Forbidden, InvalidInput, TooManyRequests, Unavailable
from tests.factories import PASSWORD
from tests.support.databases import Database

pytestmark = pytest.mark.usefixtures("context")
NEW = "nine small otters in a kiln"


@pytest.fixture
def acme(make: Any) -> Any:
    return make.organization(settings={"authentication": {"lockout": {"max_failures": 3}}})


@pytest.fixture
def ada(make: Any, acme: Any) -> Any:
    return make.user(acme, email="ada@acme.example", name="Ada Lovelace")


@pytest.fixture
def here(make: Any, ada: Any) -> Any:
    return make.sign_in(ada)


def actor_of(signed_in: Any) -> Any:
    return find_session(signed_in.token).actor()


def test_new_password_works_and_old_one_does_not(acme: Any, ada: Any, here: Any, database: Database) -> None:
    change_password(actor_of(here), PASSWORD, NEW)
    # Nor does it count as a failure of the network or the organization.
    assert database.count("attempts") == 0
    assert isinstance(sign_in(acme.id, ada.email, NEW), SignedIn)
    assert sign_in(acme.id, ada.email, PASSWORD).reason == "mismatch"
    assert db.session.scalars(select(AuditEvent).where(AuditEvent.action == "user.password_changed")).one()


def test_other_sessions_end_and_this_one_gets_new_cookie(make: Any, ada: Any, here: Any) -> None:
    there = make.sign_in(ada)
    token = change_password(actor_of(here), PASSWORD, NEW)
    assert find_session(there.token) is None
    assert find_session(here.token) is None
    assert find_session(token) is not None
    event = db.session.scalars(select(AuditEvent).where(AuditEvent.action == "user.password_changed")).one()
    assert event.after == {"ended_sessions": 1, "ended_grants": 0}


@pytest.mark.parametrize(
    ("current", "new", "field", "code"),
    [
        ("wrong", NEW, "current_password", "wrong_password"),
        ("", NEW, "current_password", "wrong_password"),
        (PASSWORD, PASSWORD, "new_password", "unchanged"),
        (PASSWORD, "short", "new_password", "too_short"),
        (PASSWORD, "password1234", "new_password", "too_common"),
        (PASSWORD, "adalovelace99", "new_password", "too_personal"),
        (PASSWORD, "x" * 129, "new_password", "too_long"),
    ],
)
def test_rejected_change_names_the_field_and_changes_nothing(
    acme: Any, ada: Any, here: Any, current: str, new: str, field: str, code: str
) -> None:
    with pytest.raises(InvalidInput) as refusal:
        change_password(actor_of(here), current, new)
    assert (refusal.value.errors[0].field, refusal.value.errors[0].code) == (field, code)
    assert find_session(here.token) is not None
    assert isinstance(sign_in(acme.id, ada.email, PASSWORD), SignedIn)
    assert (
        db.session.scalars(select(AuditEvent).where(AuditEvent.action == "user.password_changed")).all() == []
    )


def test_guessing_the_current_password_is_limited(here: Any) -> None:
    actor = actor_of(here)
    for _ in range(3):
        with pytest.raises(InvalidInput):
            change_password(actor, "guess", NEW)
    with pytest.raises(TooManyRequests) as refusal:
        change_password(actor, PASSWORD, NEW)
    assert refusal.value.retry_after > 0


def test_guesses_in_stolen_session_count_with_sign_in_failures(
    acme: Any, ada: Any, here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LK-1: a hundred from a hundred networks, and no more by signing in."""
    monkeypatch.setattr(passwords, "verify_password", lambda *_, **__: (False, None))
    actor = actor_of(here)
    for number in range(MAX_FAILURES_PER_ACCOUNT):
        with pytest.raises(InvalidInput):
            change_password(replace(actor, ip_address=f"198.51.{number}.1"), "guess", NEW)
    elsewhere = replace(actor, ip_address="192.0.2.1")
    with pytest.raises(TooManyRequests, match="unrecognized browsers"):
        change_password(elsewhere, "guess", NEW)
    assert sign_in(acme.id, ada.email, PASSWORD, ip_address="192.0.2.2").reason == "capped"


def test_known_browser_of_owner_does_not_wait(ada: Any, here: Any) -> None:
    """LK-1: it has its own counter."""
    actor = actor_of(here)
    for _ in range(3):
        with pytest.raises(InvalidInput):
            change_password(actor, "guess", NEW)
    with pytest.raises(TooManyRequests):
        change_password(actor, PASSWORD, NEW)
    assert change_password(actor, PASSWORD, NEW, known_cookie=here.known_cookie)


def test_weak_new_password_is_not_counted_as_failure(here: Any) -> None:
    for _ in range(5):
        with pytest.raises(InvalidInput):
            change_password(actor_of(here), PASSWORD, "weak")
    assert change_password(actor_of(here), PASSWORD, NEW)


def test_visiting_root_user_has_no_password_in_the_organization(make: Any, acme: Any, ada: Any) -> None:
    visiting = make.actor(make.root(), user=ada).acting_in(acme.id, frozenset({"users:write"}))
    with pytest.raises(Forbidden):
        change_password(visiting, PASSWORD, NEW)


def test_unavailable_hashing_is_not_counted_as_failure(
    ada: Any, here: Any, database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No one waits for failures that they did not cause."""

    def crowded(*_: object, **__: object) -> None:
        raise Unavailable("Too many people are signing in at this moment.", retry_after=3)

    monkeypatch.setattr(passwords, "verify_password", crowded)
    for _ in range(5):
        with pytest.raises(Unavailable):
            change_password(actor_of(here), PASSWORD, NEW)
    assert database.count("attempts") == 0


def test_hash_that_a_sign_in_renews_meanwhile_is_the_same_password(
    acme: Any, ada: Any, here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = passwords.verify_password

    def verify(*sent: Any, **place: Any) -> tuple[bool, str | None]:
        verified = real(*sent, **place)
        renew_hash(ada)
        return verified

    monkeypatch.setattr(passwords, "verify_password", verify)
    change_password(actor_of(here), PASSWORD, NEW)
    monkeypatch.undo()
    assert isinstance(sign_in(acme.id, ada.email, NEW), SignedIn)


@transaction
def renew_hash(user: Any) -> None:
    renewed = PasswordHasher(time_cost=1, memory_cost=2048).hash(PASSWORD)
    db.session.execute(update(User).where(User.id == user.id).values(password_hash=renewed))
