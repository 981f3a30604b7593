"""Invitations where nobody can join or no new user could sign in: new ones are rejected, and open ones wait."""

from __future__ import annotations

from html import unescape
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import update

from app.extensions import db
from app.fast_path import cache_invalidation
from app.models.organization import Organization
from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.sign_in.passwords import hash_new_password
from app.operations.store.transactions import transaction
from app.operations.users.invitations import accept_invitation, create_invitation, find_invitation
from app.rules.errors import Conflict
from tests.factories import Factory
from tests.support.databases import Database

GOOD = "nine small otters in a kiln"
OFF = {"authentication": {"password": {"enabled": False}, "passkeys": {"passwordless": False}}}
CLOSED = {"authentication": {"registration": {"mode": "closed"}}}


@transaction
def switch(organization: OrganizationSnapshot, settings: dict[str, Any]) -> None:
    """Replace the settings."""
    mine = Organization.id == organization.id
    db.session.execute(
        update(Organization).where(mine).values(settings=settings, version=Organization.version + 1)
    )
    cache_invalidation.invalidate(organization.id)


def test_open_invitation_works_again_once_sign_in_is_possible(
    context: Flask, make: Factory, database: Database, http: FlaskClient
) -> None:
    acme = make.organization(name="Acme")
    make.user(acme)
    made = create_invitation(make.actor(acme), acme.slug, email="guest@acme.example")
    assert made.link is not None
    token = made.link.rpartition("/")[2]
    switch(acme, OFF)
    with pytest.raises(Conflict) as refused:
        create_invitation(make.actor(acme), acme.slug, email="other@acme.example")
    assert refused.value.code == "passwords_off"
    assert "authentication.password.enabled" in refused.value.description
    page = http.get(f"/organizations/{acme.slug}/invite/{token}")
    assert page.status_code == 409 and "Acme has turned off every way to sign in" in page.text
    hashed = hash_new_password(acme.settings, GOOD)
    with pytest.raises(Conflict):
        accept_invitation(token, name="Guest", password_hash=hashed)
    assert database.count("users") == 1
    switch(acme, CLOSED)
    page = http.get(f"/organizations/{acme.slug}/invite/{token}")
    assert page.status_code == 409 and "Acme doesn't accept new users" in unescape(page.text)
    with pytest.raises(Conflict) as refused:
        accept_invitation(token, name="Guest", password_hash=hashed)
    assert refused.value.code == "registration_closed" and database.count("users") == 1
    switch(acme, {})
    assert find_invitation(token) is not None
    accept_invitation(token, name="Guest", password_hash=hashed)
    assert database.count("users") == 2
