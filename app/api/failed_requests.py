"""The log of failed requests: why clients were refused, for those who make them."""

from __future__ import annotations

from typing import Any

from flask import Response

from app.api import representations
from app.api.blueprint import api
from app.api.lists import filters_of, listed
from app.operations.audit import failed_requests
from app.operations.audit.failed_requests import FILTERS, FailedRequestRecord
from app.web.bearer import Call, management
from app.web.json_api import envelope
from app.web.pagination import PARAMETERS


def failed_request(record: FailedRequestRecord, call: Call) -> dict[str, Any]:
    """One refused request, with what happened and how to mend it in words."""
    return {
        "id": record.public_id,
        "organization_id": call.organization.slug,
        "at": representations.time(record.at),
        "request_id": record.request_id,
        "client_id": record.client_id,
        "client_name": record.client_name,
        "endpoint": record.endpoint,
        "method": record.method,
        "status": record.status,
        "error": record.error,
        "error_description": record.description,
        "cause": record.cause,
        "what_happened": record.explanation.what,
        "how_to_fix": record.explanation.fix,
        "received": record.received,
        "expected": list(record.expected),
        "parameters": dict(record.parameters),
        "address": record.address,
    }


@api.get("/logs/failed-requests")
@management(*PARAMETERS, *FILTERS)
def list_failed_requests(call: Call) -> Response:
    """The refused requests that the caller may see, the newest first."""
    return listed(
        call,
        "failed requests",
        failed_requests.list_failed_requests,
        show=lambda record: failed_request(record, call),
        filters=filters_of(call, FILTERS),
    )


@api.get("/logs/failed-requests/<failed_request_id>")
@management()
def get_failed_request(call: Call, failed_request_id: str) -> Response:
    """One refused request, with how often the same happened in the day before it."""
    record = failed_requests.get_failed_request(call.actor, failed_request_id)
    more = {"similar": record.similar, "similar_since": representations.time(record.similar_since)}
    return envelope(failed_request(record, call) | more)
