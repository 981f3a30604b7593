"""The audit log: list, one event, and all of it as lines of JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from flask import Response, json, stream_with_context

from app.api.blueprint import api
from app.api.lists import filters_of, listed
from app.api.representations import time
from app.operations.audit import audit_events
from app.operations.audit.audit_events import FILTERS, AuditRecord
from app.operations.audit.chain import verify_audit_log
from app.web.bearer import Call, management
from app.web.json_api import envelope
from app.web.pagination import PARAMETERS
from app.web.parameters import whole_number


def audit_event(record: AuditRecord, organization: str) -> dict[str, Any]:
    """One event, with who acted, on what, and the changed fields."""
    return {
        "id": record.public_id,
        "organization_id": organization,
        "at": time(record.at),
        "action": record.action,
        "actor": {
            "type": record.actor_kind,
            "id": record.actor_id,
            "label": record.actor_label,
            "organization_id": record.actor_organization or organization,
        },
        "target": {"type": record.target_type, "id": record.target_id},
        "before": record.before,
        "after": record.after,
        "address": record.address,
        "request_id": record.request_id,
    }


@api.get("/audit-events")
@management(*PARAMETERS, *FILTERS)
def list_audit_events(call: Call) -> Response:
    """A page of the organization's audit log, the newest first."""
    return listed(
        call,
        "audit events",
        audit_events.list_audit_events,
        show=lambda record: audit_event(record, call.organization.slug),
        filters=filters_of(call, FILTERS),
    )


@api.get("/audit-events/export")
@management(*FILTERS)
def export_audit_events(call: Call) -> Response:
    """All that matches, the oldest first, an event a line; it is read while it is sent."""
    records = audit_events.export_audit_events(call.actor, filters=filters_of(call, FILTERS))
    response = Response(
        stream_with_context(_lines(records, call.organization.slug)), mimetype="application/x-ndjson"
    )
    response.headers["Cache-Control"] = "no-store"
    response.headers["Content-Disposition"] = (
        f'attachment; filename="{call.organization.slug}-audit-events.ndjson"'
    )
    return response


@api.get("/audit-events/verification")
@management("after_position")
def verify_audit_events(call: Call) -> Response:
    """A part of the log held against its hash chain; ``meta.next_position`` is where to go on."""
    found = verify_audit_log(call.actor, after=whole_number(call.parameters, "after_position"))
    data = {
        "intact": found.is_intact,
        "length": found.length,
        "removed": found.removed,
        "checked": found.checked,
        "waiting": found.pending,
        "problems": [
            {
                "kind": problem.kind,
                "message": problem.message,
                "position": problem.position,
                "event_id": problem.event_id,
            }
            for problem in found.problems
        ],
    }
    return envelope(data, meta={"next_position": found.next_position})


@api.get("/audit-events/<audit_event_id>")
@management()
def get_audit_event(call: Call, audit_event_id: str) -> Response:
    """One event."""
    record = audit_events.get_audit_event(call.actor, audit_event_id)
    return envelope(audit_event(record, call.organization.slug))


def _lines(records: Iterable[AuditRecord], organization: str) -> Iterator[str]:
    for record in records:
        yield json.dumps(audit_event(record, organization)) + "\n"
