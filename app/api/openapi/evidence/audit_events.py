"""OpenAPI: the audit log."""

from __future__ import annotations

from app.api.openapi.common import SLUG, public_id
from app.api.openapi.parts import (
    Schema,
    answer,
    closed,
    count,
    flag,
    listed,
    moment,
    nullable,
    operation,
    path_item,
    query_parameter,
    ref,
    shown,
    success,
    text,
)
from app.rules.audit.chain import PROBLEMS

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
_VERIFIED = success(
    ref("AuditVerification"),
    closed({"next_position": nullable({"type": "integer", "description": "null at the end of the chain."})}),
)

SCHEMAS: Schema = {
    "AuditVerification": closed(
        {
            "intact": flag("Nothing is wrong with what was checked."),
            "length": count("Events that were ever sealed."),
            "removed": count("Of these, the oldest ones that retention removed."),
            "checked": count(),
            "waiting": count("Events of the last moments, not sealed yet."),
            "problems": {
                "type": "array",
                "maxItems": 100,
                "items": closed(
                    {
                        "kind": text(enum=list(PROBLEMS)),
                        "message": text(),
                        "position": nullable({"type": "integer"}),
                        "event_id": nullable(public_id("evt")),
                    }
                ),
            },
        }
    ),
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
            answers=listed("A page, the newest first.", "AuditEvent"),
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
        ),
    ),
    "/audit-events/verification": path_item(
        (),
        get=operation(
            "verifyAuditEvents",
            "Hold the audit log against its hash chain",
            tag=_TAG,
            scope="audit:read",
            description="Some thousands of events a call; begin without a position, and go on at `next_position` "
            "until it is null.",
            parameters=("Acting",),
            query=(
                query_parameter(
                    "after_position",
                    {"type": "integer", "minimum": 0, "maximum": 10**12 - 1, "default": 0},
                    "`meta.next_position` of the call before.",
                ),
            ),
            answers={"200": answer("What was found.", _VERIFIED)},
        ),
    ),
    "/audit-events/{auditEventId}": path_item(
        ("AuditEventId", "Acting"),
        get=operation(
            "getAuditEvent",
            "Show an audit event",
            tag=_TAG,
            scope="audit:read",
            answers=shown("Who did what to what, when and from where.", "AuditEvent"),
        ),
    ),
}
