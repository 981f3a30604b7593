"""The matrix of rights (TN-1, PO-1): operations x roles x own, other users', foreign, deleted and absent ids.

What each role may is written in ``tests/support/rights/operations.txt``; an operation without a line there fails.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest
from flask import Flask
from werkzeug.test import TestResponse

from tests.factories import Factory
from tests.support.answers import as_bytes, rows_of
from tests.support.databases import Database
from tests.support.matrix import World
from tests.support.openapi import Operation
from tests.support.rights import NONE, OWN, ROLES, ROOT, written
from tests.support.rights.calls import call, ids_for, in_order
from tests.support.rights.role_users import OWNED, RoleUser, spare_of, things_of, user_with_role
from tests.support.world import absent

TABLE = written("operations")
# Operations that write no audit event here, and why.
UNTOLD = {
    "confirmCredential": "the secret is not blocked",
    "revokeToken": "the token in the body does not exist, so nothing is revoked",
    "revokeUserSessions": "what there was to end ended just before",
}
# Operations that tell of others' things on purpose, and why.
SHARES = {
    "listRequestableResources": "a client can request access to APIs of others, unless for listed clients"
}
# Operations that write an audit event without a change, because they show secrets.
REVEALS = {"listCredentials", "getCredential"}


def test_po1_every_operation_is_in_the_table_of_rights(app: Flask, world: World) -> None:
    """TN-1: deny by default. A new operation must be added to the table."""
    assert {operation.id for operation in world.operations} == set(TABLE)
    assert all(set(row) == set(ROLES) for row in TABLE.values())


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.slow
def test_tn1_each_role_has_exactly_the_rights_in_the_table(
    app: Flask, world: World, make: Factory, database: Database, role: str
) -> None:
    """TN-2, TN-3: objects of other organizations don't exist for any role, and their rows never change."""
    role_user = user_with_role(app, make, world.acme, role)
    own = things_of(app, make, world.acme, role_user.user)
    others = things_of(app, make, world.acme, make.user(world.acme.organization))
    spare = spare_of(app, make, world.acme)
    before = rows_of(database, world.globex)
    done: dict[str, Operation] = {}
    refused: list[str] = []
    for operation in world.operations:
        refused += _call_with_wrong_ids(world, role_user, operation, own)
    for operation in in_order(world.operations):
        may = TABLE[operation.id][role]
        owned = [name for name in OWNED if f"{{{name}}}" in operation.path]
        if owned:
            answer = _call(world, role_user, operation, ids_for(operation.id, others))
            _is_right(operation, role, {OWN: "absent"}.get(may, may), answer)
            if answer.status_code >= 400:
                refused.append(answer.headers["X-Request-Id"])
        answer = _call(
            world, role_user, operation, {**ids_for(operation.id, own), **spare.get(operation.id, {})}
        )
        _is_right(operation, role, may, answer)
        if may == OWN and operation.id not in SHARES:
            told = json.dumps(answer.get_json())
            assert not [name for name in OWNED if others[name] in told], (
                operation.id,
                "tells of others' things",
            )
        done[answer.headers["X-Request-Id"]] = operation
    assert rows_of(database, world.globex) == before, "TN-3: another organization's rows changed"
    _is_told(database, role, done, refused)


def _is_right(operation: Operation, role: str, may: str, answer: TestResponse) -> None:
    allowed = {NONE: {403}, "absent": {404}}.get(may, {200, 201, 202})
    assert answer.status_code in allowed, (operation.id, role, may, answer.status_code, answer.text)


def _is_told(database: Database, role: str, done: dict[str, Operation], refused: list[str]) -> None:
    """Check AU-1: each change has an event, with before and after if fields changed, and nothing else has one."""
    told = defaultdict(list)
    for request_id, action, before, after in database.query(
        "SELECT request_id, action, `before`, `after` FROM audit_events WHERE request_id IS NOT NULL"
    ):
        told[_text(request_id)].append((action, before, after))
    for request_id, operation in done.items():
        events = told.pop(request_id, [])
        if TABLE[operation.id][role] == NONE or operation.id in UNTOLD:
            assert not events, (operation.id, role, events)
        elif operation.method == "get":
            assert bool(events) == (operation.id in REVEALS), (operation.id, role, events)
        else:
            assert events, (operation.id, role, "left no audit event")
        if operation.method == "put" and events:
            assert any(before and after for _, before, after in events), (operation.id, events)
    assert not set(told) & set(refused), "what was refused left an audit event"


def _call_with_wrong_ids(
    world: World, role_user: RoleUser, operation: Operation, own: dict[str, str]
) -> list[str]:
    """Check that foreign, deleted and absent ids get the same bytes; return the ids of the requests.

    ``test_route_matrix`` sends malformed ids.
    """
    may, never, asked = TABLE[operation.id][role_user.role], absent(world.acme), list[str]()
    for name in (parameter["name"] for parameter in operation.parameters if parameter["in"] == "path"):
        if name == "id" and role_user.role == ROOT:
            continue  # Every organization is root's to name.
        kinds = {"foreign": world.globex.ids[name], "absent": never[name]}
        if name != "credentialId":  # A revoked secret stays in the ledger: it tells which one that was.
            kinds["deleted"] = world.ended[name]
        answers = {
            kind: _call(world, role_user, operation, {**own, name: value}) for kind, value in kinds.items()
        }
        alike = {as_bytes(answer) for answer in answers.values()}
        assert len(alike) == 1, (operation.id, role_user.role, name, alike)
        refusals = {403, 404} if may == NONE else {404}
        for kind, answer in answers.items():
            assert answer.status_code in refusals, (operation.id, role_user.role, name, kind, answer.text)
            asked.append(answer.headers["X-Request-Id"])
    return asked


def _call(world: World, role_user: RoleUser, operation: Operation, ids: dict[str, str]) -> TestResponse:
    body = {"client_id": ids["clientId"]} if operation.id == "revokeTokens" else None
    return call(world, role_user, operation, ids, body)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
