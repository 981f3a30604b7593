"""Roles: permissions are read for each request. ``test_role_matrix`` covers the permissions of each role."""

from __future__ import annotations

from flask import Flask

from app.operations.organizations import administrators
from tests.factories import Factory, bearer_header
from tests.support.matrix import World
from tests.support.user_tokens import user_token


def test_removed_role_is_lost_immediately(app: Flask, world: World, make: Factory) -> None:
    user = make.user(world.acme.organization, role="auditor")
    token = user_token(app, make, user)
    assert world.http.get("/clients", headers=bearer_header(token)).status_code == 200
    with app.app_context():
        actor = make.actor(world.acme.organization)
        listed = administrators.list_administrators(actor, "acme-corner", filters={"role": "auditor"}).items
        administrators.remove_administrator(actor, "acme-corner", listed[0].public_id)
    assert world.http.get("/clients", headers=bearer_header(token)).status_code == 403
