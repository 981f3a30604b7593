"""Thirty requests with one reset link, or for one: one succeeds (F17, RP-1)."""

from __future__ import annotations

import itertools

import pytest
from flask import Flask

from app.operations.users import password_resets
from app.operations.users.password_resets import find_reset, issue_reset_link, reset_password
from tests.factories import Factory
from tests.oauth.conftest import audited
from tests.support.databases import Database
from tests.support.threads import at_once

CROWD = 30


def test_reset_link_sets_one_password(
    app: Flask, make: Factory, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = itertools.count()
    # The race is for the link. Password hashing in turns would spread the requests.
    monkeypatch.setattr(password_resets, "hash_new_password", lambda *_, **__: f"hash {next(numbers)}")
    acme = make.organization()
    ada = make.user(acme)
    with app.app_context():
        token = issue_reset_link(make.actor(acme), ada.id).link.rpartition("/")[2]
    results = at_once(app, [lambda: reset_password(acme, token, "x" * 20) for _ in range(CROWD)])
    assert sorted(results) == ["PasswordResetResult", *["ResetEnded"] * (CROWD - 1)]
    assert audited(database, "user.password_reset") == 1


def test_concurrent_reset_requests_leave_one_valid_link(
    app: Flask, make: Factory, database: Database
) -> None:
    acme = make.organization()
    ada = make.user(acme)
    links: list[str] = []

    def issue() -> None:
        links.append(issue_reset_link(make.actor(acme), ada.id).link)

    results = at_once(app, [issue] * CROWD)
    assert results == ["NoneType"] * CROWD
    assert database.count("account_links") == 1
    with app.app_context():
        living = [link for link in links if find_reset(acme, link.rpartition("/")[2]) is not None]
    assert len(living) == 1
