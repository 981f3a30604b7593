"""Approving and rejecting registrations in the portal."""

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


def test_registration_is_approved(ada: Any, acme: Any, app: Flask, waiting: str) -> None:
    ada.get("/users")
    assert "1 pending sign-up" in ada.text
    ada.get("/registrations")
    assert "new@example.com" in ada.text and "No mail server is configured" in ada.text
    ada.send(f"/registrations/{waiting}/approve")
    with app.app_context():
        user = find_user_by_email(acme.id, "new@example.com")
    assert user is not None and not user.email_verified
    ada.get("/registrations")
    assert "No pending sign-ups" in ada.text


def test_registration_is_rejected(ada: Any, database: Database, waiting: str) -> None:
    ada.get("/registrations")
    ada.send(f"/registrations/{waiting}/reject")
    assert database.count("registrations") == 0
    ada.get("/users")
    assert "waiting for" not in ada.text


def test_registration_with_existing_email_shows_error(ada: Any, acme: Any, make: Any, waiting: str) -> None:
    make.user(acme, email="new@example.com")
    ada.get("/registrations")
    assert ada.send(f"/registrations/{waiting}/approve").status_code == 409
