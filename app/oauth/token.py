"""The token endpoint (RFC 6749 section 3.2)."""

from __future__ import annotations

from collections.abc import Mapping

from app.oauth import cors
from app.oauth.answer import Answer, refusal_of
from app.oauth.call import Call
from app.oauth.dpop import offer_nonce
from app.oauth.second_look import with_second_look
from app.oauth.server import GRANT_TYPES, server
from app.oauth.wire import WireRequest, read_form
from app.operations.clients import client_usage
from app.rules.errors import DomainError
from app.rules.oauth_errors import OAuthError


def issue(call: Call) -> Answer:
    """Tokens, or the refusal; sent only after the commit."""
    try:
        sent = read_form(call)
        if "grant_type" not in sent:
            raise OAuthError("The parameter grant_type is missing.").with_cause(
                "parameter_missing", expected="grant_type"
            )
        if sent["grant_type"] not in GRANT_TYPES:
            raise OAuthError(
                "The grant_type is not supported here.", code="unsupported_grant_type"
            ).with_cause("grant_type_unsupported", received=sent["grant_type"], expected=GRANT_TYPES)
        given = with_second_look(call, lambda: _issued(call, sent))
    except DomainError as error:
        given = refusal_of(error, call)
    authenticated = call.authenticated
    if authenticated is not None:
        call.note(organization=authenticated.client.organization.slug, client=authenticated.client.client_id)
        if given.status == 200:
            client_usage.record_client_use(authenticated, call.address)
    return cors.allow_own_origins(offer_nonce(given, call), call, authenticated)


def _issued(call: Call, sent: Mapping[str, str]) -> Answer:
    given: Answer = server.create_token_response(WireRequest(sent, call))
    return given
