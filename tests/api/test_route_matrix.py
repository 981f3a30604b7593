"""The route matrix (TN-1): every route with no token, a wrong scope, and foreign, deleted and malformed ids.

A route that is in neither table fails, so every new route needs an entry.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from flask import Flask
from werkzeug.test import TestResponse

from app.operations.organizations import organizations
from app.rules.directory.permissions import PERMISSIONS
from tests.factories import Factory, bearer_header
from tests.support.answers import as_bytes, is_envelope, rows_of
from tests.support.databases import Database
from tests.support.matrix import BODIES, World
from tests.support.openapi import Operation
from tests.support.world import COMMON, RARE, absent

MALFORMED = (
    "x",
    "%00",
    "..%2f..%2fetc",
    "' or 1=1 --",
    "ü" * 20,
    "x" * 2000,
    "cli_",
    "usr_00000000000000000000000000",
)


def test_every_operation_has_a_body(world: World) -> None:
    assert {operation.id for operation in world.operations} == set(BODIES)


def test_missing_or_invalid_token_is_unauthorized(world: World) -> None:
    tokens = (None, "x", "gth_at_", world.token[:-1] + ("0" if world.token[-1] != "0" else "1"), "ü")
    for operation in world.operations:
        for token in tokens:
            answer = world.call(operation, world.acme.ids, token)
            assert is_envelope(answer, 401), (operation.id, token, answer.text)
            assert answer.headers["WWW-Authenticate"].startswith("Bearer"), operation.id


def test_missing_scope_is_forbidden_and_named(world: World, make: Factory) -> None:
    tokens = {scope: make.bearer(world.acme.organization, scope) for scope in (RARE, COMMON)}
    for operation in world.operations:
        if operation.scope is None:
            continue
        answer = world.call(operation, world.acme.ids, tokens[COMMON if operation.scope == RARE else RARE])
        assert is_envelope(answer, 403), (operation.id, answer.text)
        assert answer.get_json()["required_scope"] == operation.scope, operation.id
        assert f'scope="{operation.scope}"' in answer.headers["WWW-Authenticate"], operation.id


@pytest.mark.slow
def test_tn2_foreign_deleted_absent_and_malformed_ids_are_not_found(world: World, database: Database) -> None:
    before = rows_of(database, world.globex)
    for operation in world.operations:
        names = [parameter["name"] for parameter in operation.parameters if parameter["in"] == "path"]
        if not names:
            continue
        own, never = world.acme.ids, absent(world.acme)
        answers: dict[str, TestResponse] = {}
        for label, ids in _wrong(names, own, world.globex.ids, world.ended, never):
            answers[label] = world.call(operation, ids, world.token)
        for label, answer in answers.items():
            assert is_envelope(answer, 404), (operation.id, label, answer.status_code, answer.text)
        for group in names:
            kinds = ("foreign", "absent", "deleted")
            alike = {as_bytes(answers[f"{group}:{kind}"]) for kind in kinds if f"{group}:{kind}" in answers}
            assert len(alike) == 1, (operation.id, group, alike)
    assert rows_of(database, world.globex) == before, "TN-3: another organization's rows changed"


def _wrong(
    names: list[str],
    own: dict[str, str],
    foreign: dict[str, str],
    gone: dict[str, str],
    never: dict[str, str],
) -> Iterator[tuple[str, dict[str, str]]]:
    for name in names:
        yield f"{name}:foreign", {**own, name: foreign[name]}
        yield f"{name}:absent", {**own, name: never[name]}
        if name != "credentialId":  # A revoked secret is still listed, so its id is known.
            yield f"{name}:deleted", {**own, name: gone[name]}
        for text in MALFORMED:
            yield f"{name}:malformed {text[:20]}", {**own, name: text}


def test_other_organization_is_not_found_whether_it_exists_or_not(world: World) -> None:
    named = [o for o in world.operations if any(p["name"] == "organization_id" for p in o.parameters)]
    assert {operation.id for operation in named} >= {"listClients", "registerClient", "updateClient"}
    for operation in named:
        alike = set()
        for slug in ("globex-corner", "never-was", world.ended["id"], "root"):
            answer = world.call(operation, world.acme.ids, world.token, organization_id=slug)
            assert is_envelope(answer, 404), (operation.id, slug, answer.text)
            alike.add(as_bytes(answer))
        assert len(alike) == 1, operation.id


def test_rv1_other_organization_in_body_is_always_400(world: World) -> None:
    alike = set()
    for slug in ("globex-corner", "never-was", world.ended["id"], "root", "x" * 400):
        body = {"organization_id": slug, "token_type": "access_token", "token": "unknown"}
        answer = world.http.post("/api/v1/revoke", json=body, headers=bearer_header(world.token))
        assert is_envelope(answer, 400), answer.text
        alike.add(as_bytes(answer))
    assert len(alike) == 1


def test_tn6_token_of_another_organization_gives_no_access(world: World, make: Factory) -> None:
    token = make.bearer(world.globex.organization)
    for operation in world.operations:
        if any(parameter["in"] == "path" for parameter in operation.parameters):
            answer = world.call(operation, world.acme.ids, token)
            assert is_envelope(answer, 404), (operation.id, answer.text)


@pytest.mark.parametrize("status", ["suspended", "deleted"])
def test_tn13_suspended_or_deleted_organization_gives_no_access(
    app: Flask, world: World, make: Factory, status: str
) -> None:
    with app.app_context():
        root = make.actor(make.root())
        if status == "suspended":
            organizations.update_organization(root, "acme-corner", {"status": "suspended"})
        else:
            organizations.delete_organization(root, "acme-corner")
    for operation in world.operations:
        assert is_envelope(world.call(operation, world.acme.ids, world.token), 401), operation.id


def test_js7_unsupported_method_lists_allowed_methods(world: World) -> None:
    for path in {operation.path for operation in world.operations}:
        allowed = {operation.method.upper() for operation in world.operations if operation.path == path}
        target = path
        for name, value in world.acme.ids.items():
            target = target.replace(f"{{{name}}}", value)
        answer = world.http.patch(target, json={}, headers=bearer_header(world.token))
        assert is_envelope(answer, 405), (path, answer.text)
        assert allowed <= set(answer.headers["Allow"].replace(" ", "").split(",")), path


def test_root_can_read_every_organization(world: World, make: Factory) -> None:
    token = make.bearer(make.root())
    for operation in world.operations:
        if operation.method == "get" and operation.id != "getMe":
            answer = world.call(operation, world.globex.ids, token, **_acting(operation))
            assert answer.status_code == 200, (operation.id, answer.text)


def _acting(operation: Operation) -> dict[str, str]:
    has_parameter = any(parameter["name"] == "organization_id" for parameter in operation.parameters)
    return {"organization_id": "globex-corner"} if has_parameter else {}


def test_permissions_of_the_matrix_exist(world: World) -> None:
    assert {RARE, COMMON} <= set(PERMISSIONS)
    assert COMMON not in {operation.scope for operation in world.operations if operation.scope == RARE}
