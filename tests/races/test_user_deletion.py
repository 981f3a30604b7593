"""A user is deleted while they sign in: no session is left afterwards (SS-6)."""

from __future__ import annotations

import functools

import pytest
from flask import Flask

from app.operations.sign_in import password_sign_in
from app.operations.sign_in.password_sign_in import sign_in
from app.operations.users.deletion import delete_user
from tests.factories import Factory
from tests.oauth.conftest import audited
from tests.support.databases import Database
from tests.support.threads import at_once

CROWD = 15


def test_sign_in_during_deletion_leaves_no_session(
    app: Flask, make: Factory, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The race is for the user's row. Password hashing in turns would spread the requests.
    monkeypatch.setattr(password_sign_in, "verify_password", lambda *_, **__: (True, None))
    acme = make.organization()
    for _ in range(3):
        leaving = make.user(acme, email="ada@acme.example").public_id
        enter = [lambda: sign_in(acme.id, "ada@acme.example", "any")] * CROWD
        delete = functools.partial(delete_user, make.actor(acme), leaving)
        results = at_once(app, [*enter, delete, *enter])
        assert results.count("UserDeletion") == 1 and len(results) == 2 * CROWD + 1, results
        assert database.count("sessions") == 0
    assert audited(database, "user.deleted") == 3
