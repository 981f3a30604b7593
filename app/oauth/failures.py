"""What is handed to the log of failed requests when a client is refused: never a secret, and only of named clients."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import urlencode
from uuid import UUID

from app.oauth.call import Call
from app.operations.audit.failed_requests import RejectedRequest, can_read_failed_requests
from app.operations.store import clock
from app.rules.audit.failed_requests import redact_parameters
from app.rules.errors import DomainError
from app.rules.identifiers import parse_client_id
from app.rules.token_values import digest
from app.web.browser_session import session_for
from app.web.failed_requests import failed_requests

# The ordinary course of a flow: a device that waits, a first request that is told its nonce.
_NO_FAILURES = frozenset({"authorization_pending", "use_dpop_nonce"})


def note_refusal(error: DomainError, call: Call, *, client: tuple[str, UUID] | None = None) -> None:
    """The refusal waits for the log, if it names a client of ours. ``client`` is (organization key, row id)."""
    # A fault of ours names no cause; one of the client's own servers does.
    if (error.status >= 500 and error.cause is None) or error.code in _NO_FAILURES:
        return
    sent: Mapping[str, str] = call.sent or {}
    named = client or _client_of(call, sent)
    if named is None:
        return
    waiting = failed_requests()
    # Asked first: a flood that is not kept anyway costs no more than this.
    if not waiting.has_room(named, error.cause.code if error.cause is not None else error.code):
        return
    presented = call.presented
    secret = presented.secret if presented is not None else None
    waiting.add(
        RejectedRequest(
            client=named,
            at=datetime.now(UTC) + clock.offset(),
            request_id=call.request_id or "",
            endpoint=call.endpoint,
            method=call.method,
            status=error.status,
            error=error.code,
            description=error.description,
            cause=error.cause,
            parameters=redact_parameters(sent),
            address=call.address,
            path_organization=call.organization_slug,
            auth_method=presented.method if presented is not None else None,
            secret_digest=digest(secret) if secret is not None else None,
        )
    )


def address_of_entry(call: Call) -> str | None:
    """Where the person at this browser reads why the request was refused; None for who may not.

    The entry is written a moment later: the address is that of the log, narrowed to the request.
    """
    named = _client_of(call, call.sent or {})
    session = session_for(named[0]) if named is not None else None
    if session is None or not can_read_failed_requests(session.actor()):
        return None
    return f"/portal/{session.organization_slug}/logs?{urlencode({'request_id': call.request_id})}"


def _client_of(call: Call, sent: Mapping[str, str]) -> tuple[str, UUID] | None:
    if call.authenticated is not None:
        return call.authenticated.client.organization.id, call.authenticated.client.id
    client_id = call.presented.client_id if call.presented is not None else sent.get("client_id")
    if client_id is None:
        client_id = _name_in(call.authorization or "")
    return parse_client_id(client_id)


def _name_in(header: str) -> str:
    """The user name of a Basic header that nobody has read yet: what was refused may come before the client."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return ""
    try:
        return b64decode(encoded.strip(), validate=True).decode().partition(":")[0]
    except ValueError:
        return ""
