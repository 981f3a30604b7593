"""A client that others vouched for, edited by its developer: what is refused stays typed, with the reason beside it."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask

from app.operations.clients import clients


@pytest.fixture
def grace(person: Any, acme: Any) -> Any:
    """A developer."""
    return person(acme, "developer")


@pytest.fixture
def vouched(app: Flask, make: Any, acme: Any, grace: Any) -> Any:
    """Her client, which an administrator has reviewed since."""
    with app.app_context():
        actor = make.actor(
            acme, "clients:read:own", "clients:write:own", "credentials:read:own", user=grace.user
        )
        made = clients.register_client(
            actor, {"name": "Orchard", "redirect_uris": ["https://orchard.example/callback"]}
        )
        clients.update_client(make.actor(acme), made.client.client_id, {"trust": "verified"})
    return made.client


def test_a_refused_change_of_a_trusted_client_is_a_form_again(
    app: Flask, acme: Any, make: Any, grace: Any, vouched: Any
) -> None:
    grace.get(f"/clients/{vouched.client_id}/details")
    answer = grace.send(
        f"/clients/{vouched.client_id}/details",
        name="Orchard, renamed",
        description="Ours",
        is_active="1",
        version=grace.hidden("version"),
    )
    assert answer.status_code == 403
    assert "Name : This needs the permission clients:trust." in grace.text
    assert 'value="Orchard, renamed"' in answer.text, "what was typed stays"
    assert "You may not do this" not in grace.text
    with app.app_context():
        assert clients.get_client(make.actor(acme), vouched.client_id).name == "Orchard"


def test_what_trust_is_not_about_is_saved(grace: Any, vouched: Any) -> None:
    grace.get(f"/clients/{vouched.client_id}/details")
    answer = grace.send(
        f"/clients/{vouched.client_id}/details",
        name="Orchard",
        description="Ours, with a long tail",
        is_active="1",
        version=grace.hidden("version"),
    )
    assert answer.status_code == 303
    assert "Saved" in grace.follow().text


def test_redirect_uris_of_a_trusted_client_land_at_their_field(grace: Any, vouched: Any) -> None:
    grace.get(f"/clients/{vouched.client_id}/redirects")
    answer = grace.send(
        f"/clients/{vouched.client_id}/redirects",
        redirect_uris="https://elsewhere.example/callback",
        version=grace.hidden("version"),
    )
    assert answer.status_code == 403
    assert "This needs the permission clients:trust." in grace.text
    assert "https://elsewhere.example/callback" in grace.text


def test_trust_in_a_form_made_by_hand_is_refused_at_its_field(grace: Any, vouched: Any) -> None:
    """TN-11: the operation says so, not the page that left the field out."""
    grace.get(f"/clients/{vouched.client_id}/details")
    answer = grace.send(
        f"/clients/{vouched.client_id}/details",
        name="Orchard",
        is_active="1",
        trust="first_party",
        version=grace.hidden("version"),
    )
    assert answer.status_code == 403
    assert "decides which clients are trusted" in grace.text
