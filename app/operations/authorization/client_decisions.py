"""Decisions about requested clients: one counts, whoever else decides at the same moment, and a block goes first."""

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
    DECLINED,
    KEPT_DECIDED,
    approval_after,
    check_approval,
    check_refusal,
)
from app.rules.clients.client_types import BLOCKED
from app.rules.errors import Conflict

MOST_TOLD = 50
"""Members who hear at once that the client they all asked for is allowed; the others find out when they try again."""
_UNVERIFIED, _VERIFIED = "unverified", "verified"


class ClientChanged(Conflict):
    """The client is not what was looked at any more: whoever registered it could have another approved in its place."""

    code = "client_changed"


class AlreadyDecided(Conflict):
    """Somebody decided about the request before, or it went with the client's block."""

    code = "already_decided"


@transaction
def approve_client_request(
    actor: Actor, request_id: str, fields: Mapping[str, Any] | None = None
) -> ClientRequestRecord:
    """Members may allow the client; this request and all others for it are closed, and their members told.

    ``fields``: ``verified`` gives the client the mark of review, too; ``client_version`` is the version of the client
    that was looked at, and no other one is approved then. Raises NotFound, Forbidden, InvalidInput, AlreadyDecided,
    ClientChanged, Conflict for a client that is blocked. Audit: ``client_request.approved``, ``client.updated``.
    """
    actor.require("clients:trust")
    wanted = check_approval(fields or {})
    request = find_client_request(actor, request_id)
    # Who decides which clients are trusted may set just this, whatever else of a client is theirs to change.
    decider = replace(actor, permissions=actor.permissions | {"clients:read", "clients:write"})
    client = get_client(decider, request.client_id)
    if client.approval == BLOCKED:
        raise Conflict("This client is blocked. Unblock it on its page first.", code="client_blocked")
    if wanted.client_version not in {None, client.version}:
        raise ClientChanged("The client was changed since you looked at it. Look again before you decide.")
    _decide(actor, request, APPROVED, None)
    changes: dict[str, Any] = {"approval": approval_after(client.approval)}
    if wanted.verified and client.trust == _UNVERIFIED:
        changes["trust"] = _VERIFIED
    # At the version that was read: a block that came meanwhile is not undone.
    update_client(decider, client.client_id, changes, expected_version=client.version)
    others = _close_others(actor, client, APPROVED)
    _record(actor, request, "client_request.approved", {**changes, "closed_beside": len(others)})
    for member in [request.member_id, *others][:MOST_TOLD]:
        notify_user(actor, member, "client_request_approved", client=client.name)
    return find_client_request(actor, request_id)


@transaction
def decline_client_request(
    actor: Actor, request_id: str, fields: Mapping[str, Any] | None = None
) -> ClientRequestRecord:
    """The member's request is closed, and the member told; the client stays as it is.

    ``fields``: ``message``, words for the member. Raises NotFound, Forbidden, InvalidInput, AlreadyDecided. Audit:
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
    """Of all who decide at once one finds it open."""
    now = clock.now()
    changed = count_changed(
        update(ClientRequest)
        .where(
            ClientRequest.organization_id == actor.organization_id,
            ClientRequest.id == request.id,
            ClientRequest.is_open.is_(True),
        )
        .values(**_decided(actor, status, now), message=message)
    )
    if changed != 1:
        raise AlreadyDecided("Somebody decided about this request already.")


def _close_others(actor: Actor, client: ClientRecord, status: str) -> list[UUID]:
    """Every other open request for the client is closed; returns some of their members."""
    open_ones = (
        ClientRequest.organization_id == actor.organization_id,
        ClientRequest.client_id == client.id,
        ClientRequest.is_open.is_(True),
    )
    members = list(db.session.scalars(select(ClientRequest.user_id).where(*open_ones).limit(MOST_TOLD)))
    count_changed(update(ClientRequest).where(*open_ones).values(**_decided(actor, status, clock.now())))
    return members


def _decided(actor: Actor, status: str, now: Any) -> dict[str, Any]:
    return {
        "status": status,
        "is_open": None,
        "decided_at": now,
        "decided_by": actor.label[:200] or None,
        "expires_at": now + KEPT_DECIDED,
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
