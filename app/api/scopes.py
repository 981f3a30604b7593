"""Scopes that the organization knows, and the words that consent shows for them."""

from __future__ import annotations

from typing import Any

from flask import Response

from app.api.blueprint import api
from app.api.lists import listed
from app.operations.clients import scopes
from app.operations.clients.scopes import ScopeRecord
from app.web.bearer import Call, management
from app.web.etag import etag_of, expected_version
from app.web.json_api import envelope, read_object
from app.web.pagination import PARAMETERS


def scope(record: ScopeRecord) -> dict[str, Any]:
    """A scope; ``resource_id`` is null for one that means something at any resource."""
    return {
        "name": record.name,
        "title": record.title,
        "description": record.description,
        "is_identity": record.is_identity,
        "resource_id": record.resource_public_id,
    }


@api.get("/scopes")
@management(*PARAMETERS, "q")
def list_scopes(call: Call) -> Response:
    """The scopes by name."""
    return listed(call, "scopes", scopes.search_scopes, show=scope, query=call.parameters.get("q"))


@api.get("/scopes/<path:name>")
@management()
def get_scope(call: Call, name: str) -> Response:
    """One scope."""
    record = scopes.get_scope(call.actor, name)
    return envelope(scope(record), headers={"ETag": etag_of(record.version)})


@api.put("/scopes/<path:name>")
@management()
def reword_scope(call: Call, name: str) -> Response:
    """The consent page shows these words."""
    record, changed = scopes.update_scope(
        call.actor, name, read_object(), expected_version=expected_version()
    )
    return envelope(scope(record), meta={"changed": changed}, headers={"ETag": etag_of(record.version)})
