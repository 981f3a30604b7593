"""OpenAPI: the log of failed requests."""

from __future__ import annotations

from app.api.openapi.common import CLIENT_ID, SLUG, public_id
from app.api.openapi.parts import (
    Schema,
    array,
    closed,
    listed,
    moment,
    nullable,
    operation,
    path_item,
    query_parameter,
    shown,
    text,
)
from app.rules.audit.failed_requests import CAUSES

_TAG = "Failed requests"
_WORD = text(minLength=1, maxLength=64)
_FIELDS: Schema = {
    "id": public_id("flr"),
    "organization_id": SLUG,
    "at": moment(),
    "request_id": text("As `X-Request-Id` and the error page have it."),
    "client_id": CLIENT_ID,
    "client_name": text(),
    "endpoint": text("`authorize`, `token`, `introspect` …"),
    "method": text(),
    "status": {"type": "integer"},
    "error": text("The code that the client was told."),
    "error_description": text("The words that it was told."),
    "cause": text("Why; the client was not told.", enum=list(CAUSES)),
    "what_happened": text(),
    "how_to_fix": text(),
    "received": nullable(text()),
    "expected": array(text(), "Any one of them would have been right."),
    "parameters": {
        "type": "object",
        "additionalProperties": text(),
        "description": "What was sent; of secrets only that they were there.",
    },
    "address": nullable(text()),
}
_SIMILAR = {
    "similar": {"type": "integer", "description": "The same client and cause in the day up to it."},
    "similar_since": nullable(moment()),
}

SCHEMAS: Schema = {
    "FailedRequest": closed(_FIELDS),
    "FailedRequestDetails": closed(_FIELDS | _SIMILAR),
}
PATHS: Schema = {
    "/logs/failed-requests": path_item(
        (),
        get=operation(
            "listFailedRequests",
            "List refused requests of clients",
            tag=_TAG,
            scope="logs:read",
            parameters=("Limit", "Cursor", "Acting"),
            query=(
                query_parameter("client_id", CLIENT_ID, "Of this client."),
                query_parameter("cause", text(enum=list(CAUSES)), "For this cause."),
                query_parameter("endpoint", _WORD, "At this endpoint."),
                query_parameter("request_id", _WORD, "Under this `X-Request-Id`."),
                query_parameter("since", text(minLength=1, maxLength=64), "A time of RFC 3339 or later."),
            ),
            answers=listed("A page, the newest first.", "FailedRequest"),
        ),
    ),
    "/logs/failed-requests/{failedRequestId}": path_item(
        ("FailedRequestId", "Acting"),
        get=operation(
            "getFailedRequest",
            "Show a refused request",
            tag=_TAG,
            scope="logs:read",
            answers=shown("What happened, and how to mend it.", "FailedRequestDetails"),
        ),
    ),
}
