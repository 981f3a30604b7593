"""Decisions about requested clients: of concurrent ones only the first is applied, and a block takes precedence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from sqlalchemy import select, update

from app.extensions import db
from app.models.client import ClientRequest
from app.operations.authorization.approval_requests import ClientRequestRecord, find_client_request
from app.operations.clients.client_records import ClientRecord
from app.operations.clients.clients import get_client, update_client
from app.operations.mail.notices import notify_user
from app.operations.store import audit, clock
from app.operations.store.transactions import count_changed, transaction
from app.rules.actor import Actor
from app.rules.authorization.consents import (
    APPROVED,
    DECIDED_RETENTION,
    DECLINED,
    approval_after,
    check_approval,
    check_refusal,
)
from app.rules.clients.client_types import BLOCKED
from app.rules.errors import Conflict

MAX_NOTIFIED = 50
"""Members notified of an approval by email. The others find out when they try again."""
_UNVERIFIED, _VERIFIED = "unverified", "verified"


class ClientChanged(Conflict):
    """The client changed after the administrator reviewed it."""

    code = "client_changed"


class AlreadyDecided(Conflict):
    """The request was decided before, or closed when the client was blocked."""

    code = "already_decided"


@transaction
def approve_client_request(
    actor: Actor, request_id: str, fields: Mapping[str, Any] | None = None
) -> ClientRequestRecord:
    """Approve the client for all members, close all requests for it, and notify their members.

    ``fields``: ``verified`` also marks the client as verified; ``client_version`` is the version that was reviewed.
    Raises NotFound, Forbidden, InvalidInput, AlreadyDecided, ClientChanged, and Conflict for a blocked client.
    Audit: ``client_request.approved``, ``client.updated``.
    """
    actor.require("clients:trust")
    approval = check_approval(fields or {})
    request = find_client_request(actor, request_id)
    # The permission to decide about clients includes these changes, even without the permission to edit clients.
    decider = replace(actor, permissions=actor.permissions | {"clients:read", "clients:write"})
    client = get_client(decider, request.client_id)
    if client.approval == BLOCKED:
        raise Conflict("This client is blocked. Unblock it on its page first.", code="client_blocked")
    if approval.client_version not in {None, client.version}:
        raise ClientChanged(
            "The client has changed since you opened this page. Review it again before you decide."
        )
    _decide(actor, request, APPROVED, None)
    changes: dict[str, Any] = {"approval": approval_after(client.approval)}
    if approval.verified and client.trust == _UNVERIFIED:
        changes["trust"] = _VERIFIED
    # At the version that was read, so that a concurrent block is not undone.
    update_client(decider, client.client_id, changes, expected_version=client.version)
    others = _close_others(actor, client, APPROVED)
    _record(actor, request, "client_request.approved", {**changes, "closed_beside": len(others)})
    for member in [request.member_id, *others][:MAX_NOTIFIED]:
        notify_user(actor, member, "client_request_approved", client=client.name)
    return find_client_request(actor, request_id)


@transaction
def decline_client_request(
    actor: Actor, request_id: str, fields: Mapping[str, Any] | None = None
) -> ClientRequestRecord:
    """Decline the request and notify the member. The client does not change.

    ``fields``: ``message``, a text for the member. Raises NotFound, Forbidden, InvalidInput, AlreadyDecided. Audit:
    ``client_request.declined``.
    """
    actor.require("clients:trust")
    message = check_refusal(fields or {})
    request = find_client_request(actor, request_id)
    _decide(actor, request, DECLINED, message)
    _record(actor, request, "client_request.declined", {"message": message})
    notify_user(
        actor,
        request.member_id,
        "client_request_declined",
        client=request.client_name,
        message=message or "",
    )
    return find_client_request(actor, request_id)


def _decide(actor: Actor, request: ClientRequestRecord, status: str, message: str | None) -> None:
    """Close the request. Raises AlreadyDecided if another decision was first."""
    now = clock.now()
    changed = count_changed(
        update(ClientRequest)
        .where(
            ClientRequest.organization_id == actor.organization_id,
            ClientRequest.id == request.id,
            ClientRequest.is_open.is_(True),
        )
        .values(**_decision_columns(actor, status, now), message=message)
    )
    if changed != 1:
        raise AlreadyDecided("Another administrator has already decided about this request.")


def _close_others(actor: Actor, client: ClientRecord, status: str) -> list[UUID]:
    """Close all other pending requests for the client; return some of their members."""
    pending = (
        ClientRequest.organization_id == actor.organization_id,
        ClientRequest.client_id == client.id,
        ClientRequest.is_open.is_(True),
    )
    members = list(db.session.scalars(select(ClientRequest.user_id).where(*pending).limit(MAX_NOTIFIED)))
    count_changed(
        update(ClientRequest).where(*pending).values(**_decision_columns(actor, status, clock.now()))
    )
    return members


def _decision_columns(actor: Actor, status: str, now: Any) -> dict[str, Any]:
    return {
        "status": status,
        "is_open": None,
        "decided_at": now,
        "decided_by": actor.label[:200] or None,
        "expires_at": now + DECIDED_RETENTION,
    }


def _record(actor: Actor, request: ClientRequestRecord, action: str, after: Mapping[str, Any]) -> None:
    audit.record(
        actor,
        action,
        target_type="client_request",
        target_id=request.public_id,
        before={"client_id": request.client_id, "user": request.user_id, "reason": request.reason},
        after=dict(after),
    )
