"""Accounts that wait, in the portal: let in or refused by who may."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask

from app.operations.directory.users import find_user_by_email
from tests.support.databases import Database
from tests.support.world_rows import registered


@pytest.fixture
def waiting(app: Flask, acme: Any) -> str:
    with app.app_context():
        return registered(acme, "new@example.com")


def test_who_waits_is_let_in(ada: Any, acme: Any, app: Flask, waiting: str) -> None:
    ada.get("/users")
    assert "1 account waits" in ada.text
    ada.get("/registrations")
    assert "new@example.com" in ada.text and "No mail server is set up" in ada.text
    ada.send(f"/registrations/{waiting}/admit")
    with app.app_context():
        user = find_user_by_email(acme.id, "new@example.com")
    assert user is not None and not user.email_verified
    ada.get("/registrations")
    assert "Nobody waits" in ada.text


def test_who_waits_is_refused(ada: Any, database: Database, waiting: str) -> None:
    ada.get("/registrations")
    ada.send(f"/registrations/{waiting}/refuse")
    assert database.count("registrations") == 0
    ada.get("/users")
    assert "waits" not in ada.text


def test_an_address_that_has_an_account_by_now_is_told(ada: Any, acme: Any, make: Any, waiting: str) -> None:
    make.user(acme, email="new@example.com")
    ada.get("/registrations")
    assert ada.send(f"/registrations/{waiting}/admit").status_code == 409
