"""Responses do not reveal who has an account (EN-1, EN-2): their times have the same distribution.

Each test compares 300 samples of both kinds, taken alternately, by the Mann-Whitney U test (p > 0.01). Chance alone
fails one round in a hundred and other processes some more, so a failed round is repeated with new samples, and three
failures in a row are no chance. Password hashing is cheap here, so that it does not hide other differences. Other
processes do not change the CPU time of this thread, so it shows whether a hash was left out, as the last test does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import pytest
from argon2 import PasswordHasher
from sqlalchemy import insert, update

from app.extensions import db
from app.models.second_factor import AuthenticatorApp
from app.models.user import User
from app.operations.sign_in.password_sign_in import sign_in
from app.operations.store import clock
from app.operations.users import password_resets, sign_up
from app.operations.users.invitations import create_invitation, find_invitation, revoke_invitation
from app.operations.users.password_resets import request_reset
from app.operations.users.sign_up import register_user
from app.rules.identifiers import INVITATION, new_token
from app.rules.sign_in import passwords
from app.rules.sign_in.passwords import Lockout
from tests.factories import PASSWORD
from tests.support.mail_server import Mailbox
from tests.support.samples import Samples, same_distribution

pytestmark = [pytest.mark.mariadb, pytest.mark.usefixtures("context", "cheap", "unlimited")]
SAMPLES, ROUNDS = 300, 3
KNOWN, UNKNOWN = "ada@acme.example", "eve@acme.example"
Call = Callable[[str], object]


@pytest.fixture
def cheap(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Use password hashing that takes about a millisecond."""
    hasher = PasswordHasher(time_cost=1, memory_cost=2048, parallelism=1)
    monkeypatch.setattr(passwords, "_hasher", hasher)
    passwords.dummy_hash.cache_clear()
    yield
    monkeypatch.undo()
    passwords.dummy_hash.cache_clear()


@pytest.fixture
def unlimited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the waits; failures are still counted."""
    monkeypatch.setattr(Lockout, "seconds_to_wait", lambda *args: 0)


@pytest.fixture
def acme(make: Any) -> Any:
    """An organization with open registration and one account whose hash is cheap."""
    made = make.organization(settings={"authentication": {"registration": {"mode": "open"}}})
    make.user(made, email=KNOWN)
    with db.engine.begin() as connection:
        connection.execute(update(User).values(password_hash=passwords.hash_password(PASSWORD)))
    return made


def taken(call: Call, one: str, other: str, pairs: int = SAMPLES) -> tuple[Samples, Samples]:
    """Call each of the two functions this number of times, in pairs of alternating order."""
    samples = {one: Samples(), other: Samples()}
    for number in range(pairs):
        for which in (one, other) if number % 2 else (other, one):
            samples[which].take(lambda: call(which))  # noqa: B023
    return samples[one], samples[other]


def do_the_same_work(one: Samples, other: Samples) -> bool:
    """Return whether the CPU times differ by less than half of a cheap hash, which is timed here and now."""
    hashes = Samples()
    for _ in range(50):
        hashes.take(lambda: passwords.hash_password(PASSWORD))
    return abs(median(one.work) - median(other.work)) < median(hashes.work) / 2


def are_alike(call: Call, one: str = KNOWN, other: str = UNKNOWN) -> bool:
    """Return whether one round in three shows no difference in time, and no round a difference in CPU time."""
    for which in (one, other):
        call(which)
    for _ in range(ROUNDS):
        rounds = taken(call, one, other)
        if not do_the_same_work(*rounds):
            return False
        if same_distribution(rounds[0].seconds, rounds[1].seconds) > 0.01:
            return True
    return False


def guess(acme: Any) -> Call:
    return lambda email: sign_in(acme.id, email, "wrong", ip_address="203.0.113.9")


def test_en1_wrong_password_is_uniform(acme: Any) -> None:
    assert guess(acme)(KNOWN) == guess(acme)(UNKNOWN)
    assert are_alike(guess(acme))


def test_en1_wrong_password_with_a_second_factor_is_uniform(acme: Any, make: Any) -> None:
    """Without the correct password, the response does not reveal the second factor."""
    user = make.user(acme, email="careful@acme.example")
    with db.engine.begin() as connection:
        connection.execute(update(User).values(password_hash=passwords.hash_password(PASSWORD)))
        connection.execute(
            insert(AuthenticatorApp).values(
                organization_id=acme.id,
                user_id=user.id,
                sealed_secret=b"x",
                last_step=0,
                created_at=clock.now(),
            )
        )
    assert guess(acme)(user.email) == guess(acme)(UNKNOWN)
    assert are_alike(guess(acme), user.email)


def test_en1_forgotten_password_is_uniform(acme: Any, box: Mailbox) -> None:
    """The email is sent later, by the dispatcher, in both cases."""
    assert password_resets.is_password_recovery_offered(acme)
    assert are_alike(lambda email: request_reset(acme, email, ip_address="203.0.113.9", request_id=None))


def test_en1_sign_up_is_uniform(acme: Any, box: Mailbox) -> None:
    """The dispatcher sends an email later in both cases."""
    assert sign_up.next_registration_step(acme) == "mail"

    def ask(email: str) -> None:
        register_user(
            acme, email=email, name="Somebody", password=PASSWORD, ip_address="203.0.113.9", request_id=None
        )

    assert are_alike(ask)


def test_en1_expired_and_unknown_invitations_are_uniform(acme: Any, make: Any) -> None:
    actor = make.actor(acme)
    invited = create_invitation(actor, acme.slug, email="new@acme.example")
    revoke_invitation(actor, acme.slug, invited.invitation.public_id)
    assert invited.link is not None
    ended, never = invited.link.rpartition("/")[2], new_token(INVITATION, acme.id)
    assert find_invitation(ended) is find_invitation(never) is None


def test_en2_missing_dummy_hash_is_detected(acme: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """This tests the test: hashing for an unknown account is left out here, and the test detects it."""
    real = passwords.verify_password
    monkeypatch.setattr(
        passwords,
        "verify_password",
        lambda stored, password: real(stored, password) if stored is not None else False,
    )

    def is_detected() -> bool:
        known, unknown = taken(guess(acme), KNOWN, UNKNOWN, pairs=100)
        return same_distribution(known.work, unknown.work) < 0.01 and not do_the_same_work(known, unknown)

    # Noise of a busy machine can hide the difference in one of the series.
    assert any(is_detected() for _ in range(ROUNDS))


def test_en2_dummy_hash_has_the_current_parameters(acme: Any) -> None:
    """The dummy hash has the parameters of new passwords."""
    dummy, real = passwords.dummy_hash(), passwords.hash_password(PASSWORD)
    assert dummy.rpartition("$")[0].rpartition("$")[0] == real.rpartition("$")[0].rpartition("$")[0]
    assert not passwords.needs_rehash(dummy)
