"""Signing keys in the portal: rotation and emergency replacement."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from flask import Flask

from app.operations.grants.signing_keys import get_active_key, list_public_keys
from app.operations.store import clock
from tests.portal.conftest import PortalUser


@pytest.fixture
def kid(app: Flask, acme: Any) -> str:
    """Return the ID of the active key."""
    with app.app_context():
        return get_active_key(acme, "EdDSA").kid


def published(app: Flask, acme: Any) -> set[str]:
    with app.app_context():
        return {key["kid"] for key in list_public_keys(acme.id)}


def test_page_without_keys_explains_when_first_is_created(ada: PortalUser) -> None:
    ada.get("/settings/keys")
    assert "No keys yet" in ada.text
    assert "Rotate RS256" in ada.text and "leaked" not in ada.text


def test_page_shows_next_change(ada: PortalUser, kid: str) -> None:
    ada.get("/settings/general")
    assert "Signing keys" in ada.text
    ada.get("/settings/keys")
    assert f"EdDSA {kid[:12]}… Active" in ada.text
    assert "Rotates" in ada.text


def test_rotation_publishes_next_key(app: Flask, acme: Any, ada: PortalUser, kid: str) -> None:
    """KY-1."""
    ada.get("/settings/keys")
    ada.send("/settings/keys/rotate", algorithm="EdDSA")
    ada.follow()
    assert "New key published" in ada.text
    assert "Starts signing in 24 hours" in ada.text
    assert len(published(app, acme)) == 2 and kid in published(app, acme)


def test_emergency_replacement_requires_confirmation(
    app: Flask, acme: Any, ada: PortalUser, kid: str
) -> None:
    """KY-5: the page first shows what will stop working."""
    ada.get("/settings/keys/EdDSA/replace")
    assert "Impact" in ada.text and kid[:12] in ada.text
    assert published(app, acme) == {kid}
    ada.send("/settings/keys/EdDSA/replace")
    ada.follow()
    assert "Keys replaced" in ada.text
    assert len(published(app, acme)) == 1 and kid not in published(app, acme)


def test_emergency_replacement_requires_fresh_sign_in(
    app: Flask, acme: Any, ada: PortalUser, kid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PO-4."""
    ada.get("/settings/keys")
    begun = clock.now()
    monkeypatch.setattr(clock, "now", lambda: begun + timedelta(hours=1))
    assert "reauthenticate=1" in ada.get("/settings/keys/EdDSA/replace").headers["Location"]
    ada.get("/settings/keys")
    assert "reauthenticate=1" in ada.send("/settings/keys/EdDSA/replace").headers["Location"]
    assert published(app, acme) == {kid}


@pytest.mark.parametrize("algorithm", ["HS256", "ES256", "nonsense"])
def test_replacement_of_missing_keys_is_not_found(ada: PortalUser, kid: str, algorithm: str) -> None:
    assert ada.get(f"/settings/keys/{algorithm}/replace").status_code == 404


def test_auditor_sees_keys_without_buttons(app: Flask, acme: Any, portal_user: Any, kid: str) -> None:
    auditor = portal_user(acme, "auditor")
    auditor.get("/settings/keys")
    assert kid[:12] in auditor.text
    assert "Rotate EdDSA" not in auditor.text and "Replace" not in auditor.text
    assert auditor.get("/settings/keys/EdDSA/replace").status_code == 403
