"""Signing keys at the portal: what people see of a rotation, and what an emergency asks first."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from flask import Flask

from app.operations.grants.signing_keys import get_active_key, list_public_keys
from app.operations.store import clock
from tests.portal.conftest import Person


@pytest.fixture
def kid(app: Flask, acme: Any) -> str:
    """The key that signs."""
    with app.app_context():
        return get_active_key(acme, "EdDSA").kid


def standing(app: Flask, acme: Any) -> set[str]:
    with app.app_context():
        return {key["kid"] for key in list_public_keys(acme.id)}


def test_without_keys_it_says_when_the_first_is_made(ada: Person) -> None:
    ada.get("/settings/keys")
    assert "There is none yet" in ada.text
    assert "Rotate RS256" in ada.text and "leaked" not in ada.text


def test_the_page_says_what_comes_next(ada: Person, kid: str) -> None:
    ada.get("/settings")
    assert "Signing keys" in ada.text
    ada.get("/settings/keys")
    assert f"EdDSA {kid[:12]}… Signs" in ada.text
    assert "It is succeeded" in ada.text


def test_a_click_publishes_the_next_key(app: Flask, acme: Any, ada: Person, kid: str) -> None:
    """KY-1."""
    ada.get("/settings/keys")
    ada.send("/settings/keys/rotate", algorithm="EdDSA")
    ada.follow()
    assert "The next key is published" in ada.text
    assert "It signs in 24 hours" in ada.text
    assert len(standing(app, acme)) == 2 and kid in standing(app, acme)


def test_an_emergency_says_what_it_costs_and_then_acts(app: Flask, acme: Any, ada: Person, kid: str) -> None:
    """KY-5: one click from a page that says what will stop working."""
    ada.get("/settings/keys/EdDSA/replace")
    assert "What will stop working" in ada.text and kid[:12] in ada.text
    assert standing(app, acme) == {kid}
    ada.send("/settings/keys/EdDSA/replace")
    ada.follow()
    assert "A fresh key signs from now on" in ada.text
    assert len(standing(app, acme)) == 1 and kid not in standing(app, acme)


def test_an_emergency_asks_for_a_fresh_sign_in(
    app: Flask, acme: Any, ada: Person, kid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PO-4."""
    ada.get("/settings/keys")
    begun = clock.now()
    monkeypatch.setattr(clock, "now", lambda: begun + timedelta(hours=1))
    assert "reauthenticate=1" in ada.get("/settings/keys/EdDSA/replace").headers["Location"]
    ada.get("/settings/keys")
    assert "reauthenticate=1" in ada.send("/settings/keys/EdDSA/replace").headers["Location"]
    assert standing(app, acme) == {kid}


@pytest.mark.parametrize("algorithm", ["HS256", "ES256", "nonsense"])
def test_there_is_no_page_for_keys_that_are_not_there(ada: Person, kid: str, algorithm: str) -> None:
    assert ada.get(f"/settings/keys/{algorithm}/replace").status_code == 404


def test_who_only_reads_sees_no_button(app: Flask, acme: Any, person: Any, kid: str) -> None:
    auditor = person(acme, "auditor")
    auditor.get("/settings/keys")
    assert kid[:12] in auditor.text
    assert "Rotate EdDSA" not in auditor.text and "Replace" not in auditor.text
    assert auditor.get("/settings/keys/EdDSA/replace").status_code == 403
