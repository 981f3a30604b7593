"""The token endpoint (RFC 6749 section 3.2)."""

from __future__ import annotations

from collections.abc import Mapping

from app.oauth import cors
from app.oauth.call import Answer, Call, refusal_of
from app.oauth.dpop import offer_nonce
from app.oauth.server import GRANT_TYPES, server
from app.oauth.wire import WireRequest, read_form
from app.operations import directory
from app.operations.protocol import usage
from app.rules.errors import DomainError
from app.rules.protocol.dpop import InvalidProof
from app.rules.protocol.oauth_errors import (
    InvalidGrant,
    InvalidScope,
    InvalidTarget,
    OAuthRefusal,
    UnauthorizedClient,
)


def issue(call: Call) -> Answer:
    """Tokens, or the refusal; sent only after the commit."""
    try:
        sent = read_form(call)
        if "grant_type" not in sent:
            raise OAuthRefusal("The parameter grant_type is missing.").because(
                "parameter_missing", expected="grant_type"
            )
        if sent["grant_type"] not in GRANT_TYPES:
            raise OAuthRefusal(
                "The grant_type is not supported here.", code="unsupported_grant_type"
            ).because("grant_type_unsupported", received=sent["grant_type"], expected=GRANT_TYPES)
        given = _issued(call, sent)
    except DomainError as error:
        given = refusal_of(error, call)
    authenticated = call.authenticated
    if authenticated is not None:
        call.note(organization=authenticated.client.organization.slug, client=authenticated.client.client_id)
        if given.status == 200:
            usage.note_use(authenticated, call.address)
    return cors.allow_own_origins(offer_nonce(given, call), call, authenticated)


def _issued(call: Call, sent: Mapping[str, str]) -> Answer:
    try:
        return _answered(call, sent)
    except (InvalidGrant, InvalidProof, InvalidScope, InvalidTarget, UnauthorizedClient):
        # What was allowed a moment ago on another machine is not refused here for a view that has not heard of it.
        if not _is_stale(call):
            raise
    return _answered(call, sent)


def _answered(call: Call, sent: Mapping[str, str]) -> Answer:
    given: Answer = server.create_token_response(WireRequest(sent, call))
    return given


def _is_stale(call: Call) -> bool:
    """Whether the client that authenticated is another by now; what is read for it is what counts from here on."""
    if call.authenticated is None:
        return False
    client = call.authenticated.client
    fresh = directory.reread(client)
    return (
        fresh is None
        or fresh.version != client.version
        or fresh.organization.version != client.organization.version
    )
