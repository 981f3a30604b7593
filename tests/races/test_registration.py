"""Thirty sign-ups with one email: one account is created, and no response reveals which (EN-1)."""

from __future__ import annotations

import pytest
from flask import Flask

from app.operations.users import registrations, sign_up
from app.operations.users.registrations import confirm_registration
from app.operations.users.sign_up import register_user
from app.rules.identifiers import EMAIL_VERIFICATION, new_token
from app.rules.sign_in.passwords import Lockout
from tests.factories import PASSWORD, Factory
from tests.support.databases import Database
from tests.support.threads import at_once
from tests.support.world_rows import registered

CROWD = 30


def test_concurrent_sign_ups_create_one_account(
    app: Flask, make: Factory, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The race is for the email. Password hashing in turns would spread the requests.
    monkeypatch.setattr(sign_up, "hash_new_password", lambda *_, **__: "x")
    open_to_all = {"registration": {"mode": "open", "verify_email": False}}
    acme = make.organization(settings={"authentication": open_to_all})

    def register(number: int) -> None:
        register_user(
            acme,
            email="new@example.com",
            name="New Person",
            password=PASSWORD,
            ip_address=f"192.0.{number}.1",
            request_id=None,
        )

    results = at_once(app, [lambda number=number: register(number) for number in range(CROWD)])
    assert results == ["NoneType"] * CROWD
    assert database.count("users") == 1
    assert database.count("role_assignments") == 1


def test_sign_up_is_confirmed_once(
    app: Flask, make: Factory, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OI-5: two pending sign-ups for one email are confirmed concurrently: one account, one password."""
    monkeypatch.setattr(registrations, "verify_password", lambda *_, **__: (True, None))
    # Otherwise the rate limit would spread the requests.
    monkeypatch.setattr(Lockout, "seconds_to_wait", lambda *_: 0)
    acme = make.organization(settings={"authentication": {"registration": {"mode": "open"}}})
    tokens = [new_token(EMAIL_VERIFICATION, acme.id) for _ in range(2)]
    with app.app_context():
        for token in tokens:
            registered(acme, "new@example.com", token=token)

    def confirm(number: int) -> None:
        confirm_registration(acme, tokens[number % 2], PASSWORD, ip_address=f"192.0.{number}.1")

    results = at_once(app, [lambda number=number: confirm(number) for number in range(CROWD)])
    assert sorted(set(results)) == ["NoneType", "RegistrationEnded"]
    assert results.count("NoneType") == 1
    assert (database.count("users"), database.count("registrations")) == (1, 0)
