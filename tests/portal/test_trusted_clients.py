"""A reviewed client edited by its developer: refused changes keep the input and show the reason."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask

from app.operations.clients import clients


@pytest.fixture
def grace(portal_user: Any, acme: Any) -> Any:
    """Return a developer in the portal."""
    return portal_user(acme, "developer")


@pytest.fixture
def reviewed(app: Flask, make: Any, acme: Any, grace: Any) -> Any:
    """Return her client, reviewed by an administrator."""
    with app.app_context():
        actor = make.actor(
            acme, "clients:read:own", "clients:write:own", "credentials:read:own", user=grace.user
        )
        made = clients.register_client(
            actor, {"name": "Orchard", "redirect_uris": ["https://orchard.example/callback"]}
        )
        clients.update_client(make.actor(acme), made.client.client_id, {"trust": "verified"})
    return made.client


def test_refused_change_shows_form_with_input(
    app: Flask, acme: Any, make: Any, grace: Any, reviewed: Any
) -> None:
    grace.get(f"/clients/{reviewed.client_id}/details")
    answer = grace.send(
        f"/clients/{reviewed.client_id}/details",
        name="Orchard, renamed",
        description="Ours",
        is_active="1",
        version=grace.hidden("version"),
    )
    assert answer.status_code == 403
    assert "Name : You need the permission clients:trust." in grace.text
    assert 'value="Orchard, renamed"' in answer.text
    assert "You don't have access" not in grace.text
    with app.app_context():
        assert clients.get_client(make.actor(acme), reviewed.client_id).name == "Orchard"


def test_change_unrelated_to_trust_is_saved(grace: Any, reviewed: Any) -> None:
    grace.get(f"/clients/{reviewed.client_id}/details")
    answer = grace.send(
        f"/clients/{reviewed.client_id}/details",
        name="Orchard",
        description="Ours, with a long tail",
        is_active="1",
        version=grace.hidden("version"),
    )
    assert answer.status_code == 303
    assert "Saved" in grace.follow().text


def test_refused_redirect_uri_shows_error_at_field(grace: Any, reviewed: Any) -> None:
    grace.get(f"/clients/{reviewed.client_id}/redirects")
    answer = grace.send(
        f"/clients/{reviewed.client_id}/redirects",
        redirect_uris="https://elsewhere.example/callback",
        version=grace.hidden("version"),
    )
    assert answer.status_code == 403
    assert "You need the permission clients:trust." in grace.text
    assert "https://elsewhere.example/callback" in grace.text


def test_trust_in_forged_form_is_refused(grace: Any, reviewed: Any) -> None:
    """TN-11: the operation refuses it, not only the page that hides the field."""
    grace.get(f"/clients/{reviewed.client_id}/details")
    answer = grace.send(
        f"/clients/{reviewed.client_id}/details",
        name="Orchard",
        is_active="1",
        trust="first_party",
        version=grace.hidden("version"),
    )
    assert answer.status_code == 403
    assert "to change the trust of a client" in grace.text
