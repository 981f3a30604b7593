"""Thirty requests with one passkey response: one signs in, one registers (MF-5)."""

from __future__ import annotations

from collections import Counter

import pytest
from flask import Flask
from msgspec.structs import replace

from app.operations.sign_in import passkeys
from app.operations.sign_in.passkey_registration import begin_registration, finish_registration
from app.operations.sign_in.passkey_sign_in import begin_passkey_sign_in, sign_in_with_passkey
from app.operations.sign_in.sign_in import Browser
from app.rules.actor import Actor
from tests.factories import Factory
from tests.support.databases import Database
from tests.support.security_key import Authenticator
from tests.support.threads import at_once

CROWD = 30
HERE = Browser("the browser here")


def test_passkey_response_signs_in_once(app: Flask, make: Factory, database: Database) -> None:
    """This authenticator has no counter, so only the challenge is single-use."""
    acme = make.organization()
    actor = make.actor(acme, user=make.user(acme))
    stranger = Actor.anonymous(acme.id)
    key = Authenticator(counter=None)
    with app.app_context():
        finish_registration(actor, key.create(begin_registration(actor, HERE)), "", HERE)
        answer = key.get(begin_passkey_sign_in(acme, HERE.id))
    calls = [lambda: sign_in_with_passkey(stranger, acme, answer, HERE)] * CROWD
    assert Counter(at_once(app, calls)) == {"SignedIn": 1, "PasskeyRefused": CROWD - 1}
    assert database.count("sessions") == 1


def test_signature_counter_is_accepted_once(
    app: Flask, make: Factory, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counter of the row is checked in addition to the challenge."""
    acme = make.organization()
    actor = make.actor(acme, user=make.user(acme))
    stranger = Actor.anonymous(acme.id)
    key = Authenticator()
    with app.app_context():
        finish_registration(actor, key.create(begin_registration(actor, HERE)), "", HERE)
        answer = key.get(begin_passkey_sign_in(acme, HERE.id))
    monkeypatch.setattr("app.operations.sign_in.passkey_sign_in.consume_challenge", lambda *_: None)
    calls = [lambda: sign_in_with_passkey(stranger, acme, answer, HERE)] * CROWD
    assert Counter(at_once(app, calls)) == {"SignedIn": 1, "PasskeyRefused": CROWD - 1}


def test_passkey_response_registers_once(app: Flask, make: Factory, database: Database) -> None:
    acme = make.organization()
    actor = replace(make.actor(acme, user=make.user(acme)), amr=("pwd", "mfa"))
    with app.app_context():
        answer = Authenticator().create(begin_registration(actor, HERE))

    def register() -> object:
        try:
            return finish_registration(actor, answer, "", HERE)
        except passkeys.InvalidChallenge:
            return None

    results = Counter(at_once(app, [register] * CROWD))
    assert results["AddedFactor"] == 1
    assert database.count("passkeys") == 1
