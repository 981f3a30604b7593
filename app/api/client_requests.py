"""Requests of members for clients: list, show, approve, decline."""

from __future__ import annotations

from typing import Any

from flask import Response

from app.api.blueprint import api
from app.api.lists import filters_of, listed
from app.api.representations import time
from app.operations.authorization import approval_requests, client_decisions
from app.operations.authorization.approval_requests import FILTERS, ClientRequestRecord
from app.operations.store.idempotency import IdempotentResult
from app.web.bearer import Call, management
from app.web.idempotency import once
from app.web.json_api import envelope, read_object
from app.web.pagination import PARAMETERS


@api.get("/client-requests")
@management(*PARAMETERS, *FILTERS)
def list_client_requests(call: Call) -> Response:
    """What members asked for, the newest first."""
    return listed(
        call,
        "client requests",
        approval_requests.list_client_requests,
        show=lambda record: client_request(record, call),
        filters=filters_of(call, FILTERS),
    )


@api.get("/client-requests/<request_id>")
@management()
def get_client_request(call: Call, request_id: str) -> Response:
    """One request."""
    return envelope(client_request(approval_requests.get_client_request(call.actor, request_id), call))


@api.post("/client-requests/<request_id>/approve")
@management()
def approve_client_request(call: Call, request_id: str) -> Response:
    """Members may allow the client from now on."""
    body = read_object(optional=True)

    def work() -> IdempotentResult:
        decided = client_decisions.approve_client_request(call.actor, request_id, body)
        return IdempotentResult(200, client_request(decided, call), {}, {})

    return once(call.actor, body, work)


@api.post("/client-requests/<request_id>/decline")
@management()
def decline_client_request(call: Call, request_id: str) -> Response:
    """The member's request is closed; the client stays as it is."""
    body = read_object(optional=True)

    def work() -> IdempotentResult:
        decided = client_decisions.decline_client_request(call.actor, request_id, body)
        return IdempotentResult(200, client_request(decided, call), {}, {})

    return once(call.actor, body, work)


def client_request(record: ClientRequestRecord, call: Call) -> dict[str, Any]:
    """A request as the API shows it."""
    return {
        "id": record.public_id,
        "organization_id": call.organization.slug,
        "client_id": record.client_id,
        "client_name": record.client_name,
        "client_trust": record.trust,
        "client_source": record.source,
        "client_uri": record.home_page,
        "redirect_hosts": list(record.redirect_hosts),
        "client_version": record.client_version,
        "user_id": record.user_id,
        "user_email": record.user_email,
        "status": record.status,
        "scopes": list(record.scopes),
        "reason": record.reason,
        "created_at": time(record.created_at),
        "decided_at": time(record.decided_at),
        "decided_by": record.decided_by,
        "message": record.message,
    }
