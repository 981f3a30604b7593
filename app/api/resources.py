"""Resources: the organization's APIs; list, define, show, change, delete, and what they say of themselves."""

from __future__ import annotations

from typing import Any

from flask import Response

from app.api import representations
from app.api.blueprint import api
from app.api.lists import listed
from app.operations.clients import resources
from app.operations.clients.resources import ResourceRecord
from app.operations.store.idempotency import IdempotentResult
from app.operations.tokens.introspection import metadata_for
from app.web.bearer import Call, management
from app.web.etag import etag_of, expected_version
from app.web.idempotency import created, once
from app.web.json_api import envelope, read_object
from app.web.pagination import PARAMETERS
from app.web.parameters import flag, is_descending


def resource(record: ResourceRecord, call: Call) -> dict[str, Any]:
    """A resource with its scopes."""
    return {
        "id": record.public_id,
        "organization_id": call.organization.slug,
        "identifier": record.identifier,
        "name": record.name,
        "description": record.description,
        "access_token_format": record.access_token_format,
        "access_token_ttl_seconds": record.access_token_ttl_seconds,
        "scopes": [
            {"name": scope.name, "title": scope.title, "description": scope.description}
            for scope in record.scopes
        ],
        "status": record.status,
        "created_at": representations.time(record.created_at),
        "created_by": record.created_by,
        "updated_at": representations.time(record.updated_at),
    }


def _warnings(record: ResourceRecord) -> dict[str, list[str]]:
    return {"warnings": record.warnings} if record.warnings else {}


@api.get("/resources")
@management(*PARAMETERS, "q", "status", "sort")
def list_resources(call: Call) -> Response:
    """The resources that the caller may see."""
    return listed(
        call,
        "resources",
        resources.list_resources,
        show=lambda record: resource(record, call),
        query=call.parameters.get("q"),
        status=call.parameters.get("status"),
        descending=is_descending(call.parameters, "name"),
    )


@api.post("/resources")
@management()
def define_resource(call: Call) -> Response:
    """A new resource; clients may ask for it at once."""
    body = read_object()

    def work() -> IdempotentResult:
        record = resources.define_resource(call.actor, body)
        headers = {"ETag": etag_of(record.version)}
        return created(resource(record, call), record.public_id, meta=_warnings(record), headers=headers)

    return once(call.actor, body, work)


@api.get("/resources/<resource_id>")
@management()
def get_resource(call: Call, resource_id: str) -> Response:
    """One resource."""
    record = resources.get_resource(call.actor, resource_id)
    return envelope(resource(record, call), headers={"ETag": etag_of(record.version)})


@api.put("/resources/<resource_id>")
@management("confirmed")
def update_resource(call: Call, resource_id: str) -> Response:
    """The fields sent are replaced; ``meta.changed`` lists those that differ now."""
    updated = resources.update_resource(
        call.actor,
        resource_id,
        read_object(),
        expected_version=expected_version(),
        confirmed=flag(call.parameters, "confirmed"),
    )
    return envelope(
        resource(updated.resource, call),
        meta={"changed": updated.changed, **_warnings(updated.resource)},
        headers={"ETag": etag_of(updated.resource.version)},
    )


@api.delete("/resources/<resource_id>")
@management("confirmed")
def delete_resource(call: Call, resource_id: str) -> Response:
    """The resource and its scopes are gone; the answer counts what that was."""
    ended = resources.delete_resource(
        call.actor,
        resource_id,
        expected_version=expected_version(),
        confirmed=flag(call.parameters, "confirmed"),
    )
    return envelope(
        {"id": resource_id, "deleted": True, "removed": {"scopes": ended.scopes, "clients": ended.clients}}
    )


@api.get("/resources/<resource_id>/metadata")
@management()
def get_resource_metadata(call: Call, resource_id: str) -> Response:
    """What the resource serves about itself, where, and the header of its 401 (RFC 9728)."""
    found = metadata_for(call.actor, resource_id)
    return envelope(
        {
            "document": found.document,
            "address": found.address,
            "www_authenticate": found.challenge,
        }
    )
