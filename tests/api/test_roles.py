"""The permission table against the API: people of each role meet every operation (PO-1, TN-1)."""

from __future__ import annotations

import pytest
from flask import Flask

from app.operations.people import administrators
from app.rules.people.permissions import BUILT_IN_ROLES
from tests.factories import Factory, bearer_header
from tests.support.matrix import BODIES, World
from tests.support.user_tokens import user_token


@pytest.mark.parametrize("role", BUILT_IN_ROLES)
def test_po1_a_person_may_exactly_what_the_table_says_of_their_role(
    app: Flask, world: World, make: Factory, role: str
) -> None:
    user = make.user(world.acme.organization, role=role)
    token, held = user_token(app, make, user), BUILT_IN_ROLES[role].permissions
    for operation in world.operations:
        if operation.method == "delete" and operation.id != "revokeInvitation" and role == "admin":
            continue  # It would take away what the next one is asked about; each has its own test.
        status = world.call(operation, world.acme.ids, token).status_code
        if operation.scope is None or operation.scope in held:
            assert status not in {401, 403}, (role, operation.id, status)
        elif operation.id == "rewordScope" or operation.path.startswith("/registration-tokens"):
            assert status == 403, "a scope of no resource and a registration token are nobody's own"
        elif f"{operation.scope}:own" in held:
            # Somebody else's client does not exist for a developer; lists and registration are their own.
            owned = ("{clientId}", "{resourceId}", "{failedRequestId}", "{grantId}")
            names_one = any(name in operation.path for name in owned)
            assert status == 404 if names_one else status < 300, (role, operation.id, status)
        else:
            assert status == 403, (role, operation.id, status)


def test_a_developer_manages_the_own_client_and_sees_no_other(
    app: Flask, world: World, make: Factory
) -> None:
    token = user_token(app, make, make.user(world.acme.organization, role="developer"))
    made = world.http.post("/clients", json=BODIES["registerClient"], headers=bearer_header(token))
    assert made.status_code == 201, made.text
    own = {**world.acme.ids, "clientId": made.get_json()["data"]["client_id"]}
    own["credentialId"] = made.get_json()["data"]["credential_id"]
    listed = world.http.get("/clients", headers=bearer_header(token)).get_json()["data"]
    assert [client["client_id"] for client in listed] == [own["clientId"]]
    for operation in world.operations:
        if "{clientId}" in operation.path and operation.id not in {"deleteClient", "cancelRotation"}:
            status = world.call(operation, own, token).status_code
            assert status < 300, (operation.id, status)


def test_a_role_that_was_taken_away_counts_no_more_at_the_next_call(
    app: Flask, world: World, make: Factory
) -> None:
    user = make.user(world.acme.organization, role="auditor")
    token = user_token(app, make, user)
    assert world.http.get("/clients", headers=bearer_header(token)).status_code == 200
    with app.app_context():
        actor = make.actor(world.acme.organization)
        listed = administrators.list_administrators(actor, "acme-corner", role="auditor").items
        administrators.remove_administrator(actor, "acme-corner", listed[0].public_id)
    assert world.http.get("/clients", headers=bearer_header(token)).status_code == 403
