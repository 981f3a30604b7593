"""Recording requests in the log of their client, without secrets: rejected ones, and samples of successful ones."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from urllib.parse import urlencode
from uuid import UUID

from flask import has_request_context

from app import metrics
from app.oauth.protocol_request import ProtocolRequest
from app.operations.audit.failed_requests import (
    LoggedRequest,
    RejectedRequest,
    can_read_requests_of,
    count_unlogged,
)
from app.operations.directory.snapshots import ClientSnapshot
from app.operations.store import clock
from app.rules.audit.failed_requests import (
    PLAYGROUND,
    PLAYGROUND_MARK,
    default_cause,
    describe_secret,
    redact_parameters,
)
from app.rules.clients.client_assertions import unverified_subject
from app.rules.errors import DomainError
from app.rules.identifiers import digest, parse_client_id, parse_token
from app.web.browser_session import session_for
from app.web.failed_requests import failed_requests

# Part of every flow: a device that polls, and a first request without a nonce.
_EXPECTED = frozenset({"authorization_pending", "use_dpop_nonce"})
# Endpoints that browsers open as pages, with the user's session.
_PAGES = frozenset({"authorize", "logout"})


def record_refusal(
    error: DomainError, request: ProtocolRequest, *, client: tuple[str, UUID] | None = None
) -> None:
    """Queue the error for the log if its client is known. ``client`` is (organization key, row id)."""
    # Internal errors have no cause. Failures of the client's own servers have one.
    if (error.status >= 500 and error.cause is None) or error.code in _EXPECTED:
        return
    sent: Mapping[str, str] = request.parameters
    request.cause = error.cause.code if error.cause is not None else default_cause(error.code)
    request.environ[metrics.OUTCOME] = (metrics.REFUSALS.name, request.cause)
    named = client or _client_of(request, sent)
    if named is None:
        return
    queue = failed_requests()
    # Checked first: requests beyond the limit then cost no more than this.
    code = error.cause.code if error.cause is not None else error.code
    if not queue.has_room(named, code):
        if request.playground_client is None:
            count_unlogged(named, code, is_authenticated=request.authenticated is not None)
        return
    presented = request.presented
    secret = presented.secret if presented is not None else None
    sent_code, refresh_token = sent.get("code"), parse_token(sent.get("refresh_token", ""))
    queue.add(
        RejectedRequest(
            client=named,
            at=clock.now(),
            request_id=request.request_id or "",
            endpoint=request.endpoint,
            method=request.method,
            status=error.status,
            error=error.code,
            description=error.description,
            cause=error.cause,
            parameters=_shown_parameters(request),
            address=request.ip_address,
            path_organization=request.organization_slug,
            auth_method=presented.method if presented is not None else None,
            secret_digest=digest(secret) if secret is not None else None,
            secret_description=describe_secret(secret) if secret is not None else None,
            user_id=_user_of_browser(request, named[0]),
            code_digest=digest(sent_code) if sent_code else None,
            grant_id=refresh_token.grant_id if refresh_token is not None else None,
        )
    )


def record_success(request: ProtocolRequest, client: ClientSnapshot, status: int) -> None:
    """Queue a sample of the request, if the limits allow one more now."""
    queue, named = failed_requests(), (client.organization.id, client.id)
    # Checked first: requests beyond the limits then cost no more than this.
    if not queue.has_room_for_sample(named):
        return
    queue.add_sample(
        LoggedRequest(
            client=named,
            at=clock.now(),
            request_id=request.request_id or "",
            endpoint=request.endpoint,
            method=request.method,
            status=status,
            parameters=redact_parameters(request.parameters),
            address=request.ip_address,
        )
    )


def _user_of_browser(request: ProtocolRequest, organization_id: str) -> UUID | None:
    """Return who is signed in to the organization in the browser that sent the request, if a browser opened it."""
    # Without Flask's request nothing has read the cookies.
    if request.endpoint not in _PAGES or not has_request_context():
        return None
    session = session_for(organization_id)
    return session.user_id if session is not None else None


def _shown_parameters(request: ProtocolRequest) -> dict[str, str]:
    shown = redact_parameters(request.parameters)
    return shown | {PLAYGROUND: PLAYGROUND_MARK} if request.playground_client else shown


def url_of_entry(request: ProtocolRequest) -> str | None:
    """Return the URL that explains the request if the user of this browser may read the client's log, else None.

    The entry is written shortly after the response, so the URL names the request, and its page waits for the entry.
    """
    named = _client_of(request, request.parameters)
    session = session_for(named[0]) if named is not None else None
    if named is None or session is None or not can_read_requests_of(session.actor(), named[1]):
        return None
    return f"/portal/{session.organization_slug}/logs?{urlencode({'request_id': request.request_id})}"


def _client_of(request: ProtocolRequest, sent: Mapping[str, str]) -> tuple[str, UUID] | None:
    if request.authenticated is not None:
        return request.authenticated.client.organization.id, request.authenticated.client.id
    client_id = request.presented.client_id if request.presented is not None else sent.get("client_id")
    if client_id is None:
        # Unverified, to find the log that explains the rejection.
        client_id = _basic_user_name(request.authorization or "") or unverified_subject(
            sent.get("client_assertion", "")
        )
    return parse_client_id(client_id)


def _basic_user_name(header: str) -> str:
    """Return the user name of a Basic header, for requests that are rejected before the client is authenticated."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return ""
    try:
        return b64decode(encoded.strip(), validate=True).decode().partition(":")[0]
    except ValueError:
        return ""
