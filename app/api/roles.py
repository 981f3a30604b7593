"""Roles: what people may do, as built in, narrowed or added by the organization."""

from __future__ import annotations

from typing import Any

from flask import Response

from app.api.blueprint import api
from app.operations.organizations import roles
from app.operations.organizations.roles import RoleRecord
from app.operations.store.idempotency import IdempotentResult
from app.web.bearer import Call, management
from app.web.etag import etag_of, expected_version
from app.web.idempotency import created, once
from app.web.json_api import envelope, read_object


def role(record: RoleRecord) -> dict[str, Any]:
    """A role, with its permissions in full."""
    return {
        "id": record.key,
        "organization_id": record.organization_slug,
        "name": record.role.name,
        "description": record.role.description,
        "permissions": list(record.role.permissions),
        "is_built_in": record.is_built_in,
    }


@api.get("/roles")
@management()
def list_roles(call: Call) -> Response:
    """Every role of the organization."""
    return envelope([role(record) for record in roles.list_roles(call.actor)], meta={"next_cursor": None})


@api.post("/roles")
@management()
def create_role(call: Call) -> Response:
    """A role of the organization's own."""
    body = read_object()

    def work() -> IdempotentResult:
        record = roles.create_role(call.actor, body)
        return created(role(record), record.key, headers={"ETag": etag_of(record.version)})

    return once(call.actor, body, work)


@api.get("/roles/<role_id>")
@management()
def get_role(call: Call, role_id: str) -> Response:
    """One role."""
    return _one(roles.get_role(call.actor, role_id))


@api.put("/roles/<role_id>")
@management()
def update_role(call: Call, role_id: str) -> Response:
    """The fields sent are replaced; ``meta.changed`` lists those that differ now."""
    record, changed = roles.update_role(
        call.actor, role_id, read_object(), expected_version=expected_version()
    )
    return _one(record, meta={"changed": list(changed)})


@api.delete("/roles/<role_id>")
@management()
def delete_role(call: Call, role_id: str) -> Response:
    """The role is no more."""
    return _one(roles.delete_role(call.actor, role_id, expected_version=expected_version()))


def _one(record: RoleRecord, meta: dict[str, Any] | None = None) -> Response:
    return envelope(role(record), meta=meta, headers={"ETag": etag_of(record.version)})
