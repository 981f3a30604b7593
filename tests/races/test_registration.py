"""Thirty at once who register one address: one account, and nobody is told which of them has it (EN-1)."""

from __future__ import annotations

import pytest
from flask import Flask

from app.operations.people import registration
from app.operations.people.registration import register_user
from tests.factories import PASSWORD, Factory
from tests.support.databases import Database
from tests.support.threads import at_once

CROWD = 30


def test_one_address_becomes_one_account(
    app: Flask, make: Factory, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is raced for is the address: hashing in turns would keep the crowd apart.
    monkeypatch.setattr(registration, "new_password_hash", lambda *_, **__: "x")
    open_to_all = {"registration": {"mode": "open", "verify_email": False}}
    acme = make.organization(settings={"authentication": open_to_all})

    def register(number: int) -> None:
        register_user(
            acme,
            email="new@example.com",
            name="New Person",
            password=PASSWORD,
            address=f"192.0.{number}.1",
            request_id=None,
        )

    results = at_once(app, [lambda number=number: register(number) for number in range(CROWD)])
    assert results == ["NoneType"] * CROWD
    assert database.count("users") == 1
    assert database.count("role_assignments") == 1
