"""OpenAPI: the audit log."""

from __future__ import annotations

from app.api.openapi.common import SLUG, public_id
from app.api.openapi.parts import (
    Schema,
    answer,
    closed,
    moment,
    nullable,
    operation,
    page,
    path_item,
    query_parameter,
    ref,
    success,
    text,
)

_TAG = "Audit log"
_WORD = text(minLength=1, maxLength=64)
_STATE = nullable({"type": "object", "description": "The changed fields. It never holds a secret."})
_FILTERS = (
    query_parameter(
        "action",
        _WORD,
        "`client.registered`, or the first words of several actions: `client` is every `client.…`.",
    ),
    query_parameter("actor", _WORD, "Done by this user or client: `usr_…`, `cli_…`."),
    query_parameter("target", _WORD, "Done to this: a public id."),
    query_parameter("since", _WORD, "A time of RFC 3339, or later."),
    query_parameter("until", _WORD, "Before this time of RFC 3339."),
    query_parameter("request_id", _WORD, "Under this `X-Request-Id`."),
)

SCHEMAS: Schema = {
    "AuditEvent": closed(
        {
            "id": public_id("evt"),
            "organization_id": SLUG,
            "at": moment(),
            "action": text("In the past tense: `client.registered`."),
            "actor": closed(
                {
                    "type": text(enum=["user", "client", "system", "anonymous"]),
                    "id": nullable(text("`usr_…` or `cli_…`.")),
                    "label": text("E-mail or name at that time."),
                    "organization_id": text("Another than the event's where root acted."),
                }
            ),
            "target": closed({"type": nullable(text()), "id": nullable(text())}),
            "before": _STATE,
            "after": _STATE,
            "address": nullable(text()),
            "request_id": nullable(text("As `X-Request-Id` had it.")),
        }
    ),
}
PATHS: Schema = {
    "/audit-events": path_item(
        (),
        get=operation(
            "listAuditEvents",
            "List audit events",
            tag=_TAG,
            scope="audit:read",
            parameters=("Limit", "Cursor", "Acting"),
            query=_FILTERS,
            answers={"200": answer("A page, the newest first.", page(ref("AuditEvent")))},
            extra=("404",),
        ),
    ),
    "/audit-events/export": path_item(
        (),
        get=operation(
            "exportAuditEvents",
            "Export audit events",
            tag=_TAG,
            scope="audit:read",
            description="Everything that matches, the oldest first, one `AuditEvent` a line.",
            parameters=("Acting",),
            query=_FILTERS,
            answers={
                "200": {
                    "description": "Lines of JSON, sent while they are read.",
                    "headers": {"X-Request-Id": {"$ref": "#/components/headers/X-Request-Id"}},
                    "content": {"application/x-ndjson": {"schema": text()}},
                }
            },
            extra=("404",),
        ),
    ),
    "/audit-events/{auditEventId}": path_item(
        ("AuditEventId", "Acting"),
        get=operation(
            "getAuditEvent",
            "Show an audit event",
            tag=_TAG,
            scope="audit:read",
            answers={"200": answer("Who did what to what, when and from where.", success(ref("AuditEvent")))},
            extra=("404",),
        ),
    ),
}
