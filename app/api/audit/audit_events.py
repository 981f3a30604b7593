"""The audit log: list, export, verify, show one event."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from flask import json

from app.api.endpoints import Endpoints, Query, Shown, filter_queries, show_page
from app.api.representations import Count, Representation, Slug, Source
from app.operations.audit import audit_events
from app.operations.audit.audit_events import FILTERS, AuditRecord
from app.operations.audit.chain_verification import verify_audit_log
from app.rules.audit.events import PROBLEMS
from app.rules.shapes import OneOf, PublicId, SchemaOnly, described
from app.web.bearer import ApiContext
from app.web.downloads import download
from app.web.json_api import integer_parameter

endpoints = Endpoints("Audit log", "audit")
_MAX_POSITION = 10**12 - 1
_EventId = Annotated[str, PublicId("evt", "event")]
_Changes = Annotated[dict[str, Any] | None, described("The changed fields, without secrets.")]


class AuditActor(Representation):
    """The actor of an event."""

    type: Annotated[
        str,
        OneOf(("user", "client", "provider", "system", "anonymous")),
        described(
            "`provider` is an identity provider that provisions users, `system` the service itself, `anonymous` a"
            " caller who has not signed in."
        ),
    ]
    id: Annotated[str | None, described("`usr_…`, `cli_…` or `idp_…`.")]
    label: Annotated[str, described("The email address or name at that time.")]
    organization_id: Annotated[str, described("Differs from the event's organization if root acted in it.")]


class AuditTarget(Representation):
    """The object that the action changed."""

    type: Annotated[
        str | None,
        described("The kind of object, such as `client` or `user`. Null if the action has no object."),
    ]
    id: Annotated[str | None, described("The ID of the object. Null if the action has no object.")]


class AuditEvent(Representation):
    """An event in the audit log."""

    id: _EventId
    organization_id: Slug
    occurred_at: Annotated[datetime, described("When the event occurred.")]
    action: Annotated[str, described("In the past tense: `client.registered`.")]
    actor: AuditActor
    target: AuditTarget
    before: _Changes
    after: _Changes
    ip_address: Annotated[
        str | None,
        described("The IP address of the request. Null if it is unknown or was removed."),
    ]
    request_id: Annotated[str | None, described("The `X-Request-Id` of the request.")]

    @classmethod
    def shown_in(cls, context: ApiContext, record: AuditRecord, **values: Any) -> dict[str, Any]:
        """Return the event as exports have it, too."""
        return audit_events.event_document(record, context.organization.slug)


class AuditProblem(Representation):
    """A problem in the hash chain."""

    kind: Annotated[str, OneOf(PROBLEMS), described("What is wrong with the chain at this position.")]
    message: Annotated[str, described("A description of the problem.")]
    position: Annotated[
        int | None, described("The position in the chain, from 1. Null if the problem has no position.")
    ]
    event_id: Annotated[_EventId | None, described("The event at this position. Null if there is none.")]


class AuditVerification(Representation):
    """The result of a verification."""

    intact: Annotated[
        bool,
        Source("is_intact"),
        described("Whether the events in the chain are intact. See `head`."),
    ]
    total: Annotated[Count, Source("length"), described("All events that were ever added to the chain.")]
    removed: Annotated[Count, described("The oldest of them, removed after the retention period.")]
    head: Annotated[
        str | None,
        described(
            "Identifies the chain up to event `total`. Keep both with your export: a later response with fewer events "
            "means that the end of the log was removed, which this server may not have seen."
        ),
    ]
    checked: Annotated[Count, described("Events that this request checked.")]
    pending: Annotated[Count, described("Recent events that are not in the chain yet.")]
    problems: Annotated[
        list[AuditProblem], SchemaOnly(maxItems=100), described("The problems that were found, at most 100.")
    ]


class AuditVerificationMeta(Representation):
    """The position at which to continue the verification."""

    next_position: Annotated[int | None, described("Null at the end of the chain.")]


@endpoints.page("/audit-events", returns=AuditEvent, filters=FILTERS)
def list_audit_events(context: ApiContext) -> object:
    """List audit events.

    The newest first.
    """
    return show_page(context, "audit events", audit_events.list_audit_events, filters=FILTERS)


@endpoints.get(
    "/audit-events/export", query=filter_queries(FILTERS), returns=str, response_media="application/x-ndjson"
)
def export_audit_events(context: ApiContext) -> object:
    """Export audit events.

    Every matching event, the oldest first, as one `AuditEvent` per line. If the server cannot read all of them, the
    last line begins with `ERROR` and is not JSON.
    """
    records = audit_events.export_audit_events(context.actor, filters=context.parameters)
    lines = (json.dumps(AuditEvent.shown_in(context, record)) + "\n" for record in records)
    return download(
        context.organization.id,
        lines,
        "application/x-ndjson",
        f"{context.organization.slug}-audit-events.ndjson",
    )


@endpoints.get(
    "/audit-events/verification",
    query=(
        Query(
            "after_position",
            {"type": "integer", "minimum": 0, "maximum": _MAX_POSITION, "default": 0},
            "`meta.next_position` of the previous response.",
        ),
    ),
    returns=AuditVerification,
    meta=AuditVerificationMeta,
)
def verify_audit_events(context: ApiContext) -> object:
    """Verify the hash chain of the audit log.

    A request checks some thousands of events. Begin without a position, and continue at `next_position` until it is
    null.
    """
    after = integer_parameter(
        context.parameters, "after_position", minimum=0, maximum=_MAX_POSITION, default=0
    )
    result = verify_audit_log(context.actor, after=after)
    return Shown(result, meta={"next_position": result.next_position})


@endpoints.get("/audit-events/<audit_event_id>", returns=AuditEvent)
def get_audit_event(context: ApiContext, audit_event_id: str) -> object:
    """Get an audit event."""
    return audit_events.get_audit_event(context.actor, audit_event_id)
