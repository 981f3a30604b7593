"""Endpoints of the document that belong to no part of the API: health, metadata of the API, and the document."""

from __future__ import annotations

from app.api.endpoints import JsonSchema, object_schema, reference
from app.api.openapi.components import SUCCESS, errors

SCHEMAS: JsonSchema = {
    "Health": object_schema(
        ["success", "data"],
        closed=True,
        success=SUCCESS,
        data={"type": "string", "description": "A description of the state."},
        version={"type": "string", "description": "Of this service. Only of `/healthz`."},
    )
}


def paths() -> JsonSchema:
    """Return the paths."""
    health = reference("Health")
    anything: JsonSchema = {"type": "object"}
    return {
        "/openapi.json": _get("getOpenApi", "Get this document", anything, 405, 500),
        "/healthz": _get("getHealth", "Check whether the process is running", health, 405),
        "/readyz": _get("getReadiness", "Check whether requests can be served", health, 405, 503),
        "/.well-known/oauth-protected-resource/management": _get(
            "managementApiMetadata",
            "Get the metadata of the management API as a protected resource (RFC 9728)",
            anything,
            404,
            405,
            500,
        ),
    }


def _get(identifier: str, summary: str, schema: JsonSchema, *statuses: int) -> JsonSchema:
    content = {"application/json": {"schema": schema}}
    responses = {"200": {"description": "The request succeeded.", "content": content}, **errors(*statuses)}
    operation = {
        "operationId": identifier,
        "summary": summary,
        "tags": ["Service"],
        "security": [{}],
        "responses": responses,
    }
    return {"get": operation}
