"""Many sign-ins of one user at once: each starts a session, and the limits hold as if they came in turn."""

from __future__ import annotations

import pytest
from argon2 import PasswordHasher
from flask import Flask

from app.operations.sign_in import known_browsers
from app.operations.sign_in.password_sign_in import sign_in
from app.rules.sign_in import passwords
from tests.factories import PASSWORD, Factory
from tests.support.databases import Database
from tests.support.threads import at_once

CROWD = 8


def test_concurrent_sign_ins_keep_the_limits_and_are_all_audited(
    app: Flask, make: Factory, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_browsers, "MAX_BROWSERS_PER_USER", 3)
    acme = make.organization(
        settings={
            "authentication": {"sessions": {"max_per_user": 2}, "lockout": {"max_failures": 2 * CROWD}},
        }
    )
    ada = make.user(acme)
    # Each of them renews the hash.
    monkeypatch.setattr(passwords, "_hasher", PasswordHasher(time_cost=1, memory_cost=2048, parallelism=1))

    def attempt() -> object:
        return sign_in(acme.id, ada.email, PASSWORD, ip_address="203.0.113.9")

    assert at_once(app, [attempt] * CROWD) == ["SignedIn"] * CROWD
    assert (database.count("sessions"), database.count("known_browsers")) == (2, 3)
    started = "SELECT COUNT(*) FROM audit_events WHERE CAST(action AS CHAR) = 'session.started'"
    assert database.query(started) == [(CROWD,)]
    assert database.count("attempts") == 0
