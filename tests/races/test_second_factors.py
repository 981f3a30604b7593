"""A hundred requests with one code: one signs in (MF-1, MF-3, MF-4)."""

from __future__ import annotations

from collections import Counter

import pytest
from flask import Flask

from app.operations.sign_in import pending_sign_ins, second_factors
from app.operations.sign_in.factor_verification import verify_code
from app.operations.sign_in.password_sign_in import sign_in
from app.operations.sign_in.sign_in import Browser, SecondStepRequired
from app.rules.actor import Actor
from app.rules.errors import DomainError
from tests.factories import PASSWORD, Factory
from tests.support.authenticator import with_app
from tests.support.databases import Database
from tests.support.threads import at_once

CROWD = 100


def waiting(app: Flask, user: object, number: int) -> list[str]:
    """Return this number of pending sign-ins of the user, each in its own browser."""
    with app.app_context():
        found = [
            sign_in(user.organization.id, user.email, PASSWORD, browser=Browser(f"b{n}"))
            for n in range(number)
        ]
    return [step.token for step in found if isinstance(step, SecondStepRequired)]


def race(app: Flask, user: object, tokens: list[str], code: str) -> Counter[str]:
    """Send the same code for the pending sign-ins in turn and return the names of the outcomes."""

    def attempt(place: int) -> object:
        where = place % len(tokens)
        stranger = Actor.anonymous(user.organization.id)
        try:
            return verify_code(stranger, user.organization, tokens[where], code, Browser(f"b{where}"))
        except DomainError as refusal:
            return refusal

    return Counter(at_once(app, [lambda place=place: attempt(place) for place in range(CROWD)]))


@pytest.mark.parametrize("browsers", [1, 40])
def test_totp_code_signs_in_once(app: Flask, make: Factory, database: Database, browsers: int) -> None:
    """MF-1: one request succeeds, whether sent by one browser or by many."""
    ada = make.user(make.organization())
    phone = with_app(app, ada)
    found = race(app, ada, waiting(app, ada, browsers), phone.code())
    assert found["SignedIn"] == 1, found
    assert database.count("sessions") == 1


def test_correct_totp_code_is_accepted_once(
    app: Flask, make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MF-1: the conditional UPDATE decides, even without the lock on the counter."""
    ada = make.user(make.organization())
    phone = with_app(app, ada)
    code = phone.code()
    accepted: list[bool] = []
    at_once(
        app,
        [lambda: accepted.append(second_factors.use_authenticator_code(ada.organization.id, ada.id, code))]
        * 30,
    )
    assert accepted.count(True) == 1


def test_recovery_code_signs_in_once(app: Flask, make: Factory, database: Database) -> None:
    """MF-4."""
    ada = make.user(make.organization())
    phone = with_app(app, ada)
    found = race(app, ada, waiting(app, ada, 40), phone.codes[0])
    assert found["SignedIn"] == 1, found
    assert database.count("sessions") == 1


def test_concurrent_guesses_share_five_attempts(app: Flask, make: Factory, database: Database) -> None:
    """MF-3: guesses are counted atomically per user, so a hundred concurrent guesses are no more than five."""
    ada = make.user(make.organization())
    with_app(app, ada)
    race(app, ada, waiting(app, ada, 40), "000000")
    [(failures,)] = database.query("SELECT failures FROM second_factor_tries")
    assert failures == pending_sign_ins.MAX_CONSECUTIVE_FAILURES
    assert database.count("sessions") == 0
