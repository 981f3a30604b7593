"""Management API calls in an order in which none removes what another needs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from werkzeug.test import TestResponse

from tests.factories import bearer_header
from tests.support.matrix import World
from tests.support.openapi import Operation
from tests.support.rights.role_users import RoleUser

# Operations that delete what others need run last, in this order.
_ENDINGS = (
    *("rotateCredential", "updateRotation", "cancelRotation", "revokeCredential", "revokeCredentials"),
    *("revokeUserSession", "resetUserSecondFactors", "unlinkUserIdentity", "deleteIdentityProvider"),
    *("revokeUserSessions", "resetUser", "deleteUser"),
    *("revokeTokens", "deleteClient", "deleteOrganization"),
)


def in_order(operations: Iterable[Operation]) -> list[Operation]:
    """Return the operations in order: readers, writers, then those that delete or revoke."""

    def place(operation: Operation) -> tuple[int, int]:
        ending = _ENDINGS.index(operation.id) + 1 if operation.id in _ENDINGS else 0
        return ending, {"get": 0, "delete": 2}.get(operation.method, 1)

    return sorted(operations, key=place)


def ids_for(name: str, ids: dict[str, str]) -> dict[str, str]:
    """Return the ids with those of which this operation or page needs one of its own, ``<name>.<id>``."""
    own = {key.removeprefix(f"{name}."): value for key, value in ids.items() if key.startswith(f"{name}.")}
    return ids | own


def call(
    world: World,
    user: RoleUser,
    operation: Operation,
    ids: dict[str, str],
    body: dict[str, Any] | None = None,
) -> TestResponse:
    """Call the operation as the user, with secrets revealed; ``body`` replaces the valid one."""
    known = {parameter["name"] for parameter in operation.parameters if parameter["in"] == "query"}
    asked = {**user.query, "reveal": "true"}
    query = {name: value for name, value in asked.items() if name in known}
    if body is None:
        return world.call(operation, ids, user.token, **query)
    path = operation.path
    for name, value in ids.items():
        path = path.replace(f"{{{name}}}", value)
    headers = bearer_header(user.token)
    return world.http.open(
        path, method=operation.method.upper(), json=body, query_string=query, headers=headers
    )
