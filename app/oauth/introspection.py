"""Token introspection (RFC 7662)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.oauth.answer import Answer, answer, refusal_of, signed_answer
from app.oauth.authentication import authenticate
from app.oauth.call import Call
from app.oauth.wire import read_form
from app.operations.clients import client_usage
from app.operations.directory.lookups import AuthenticatedClient
from app.operations.tokens import introspection
from app.operations.tokens.access_tokens import BEARER, DPOP
from app.operations.tokens.introspection import ActiveToken
from app.rules.errors import DomainError
from app.rules.oauth_errors import OAuthError

# What a resource server asks for that wants to prove later what it was told (RFC 9701 section 4).
SIGNED = "application/token-introspection+jwt"
# The same bytes for unknown, ended, revoked, malformed and others' tokens (IT-2).
INACTIVE = {"active": False}


def introspect(call: Call) -> Answer:
    """What the token is, to a client that may know (IT-1)."""
    try:
        authenticated, active = _introspected(call, read_form(call))
    except DomainError as error:
        return refusal_of(error, call)
    client_usage.record_client_use(authenticated, call.address)
    document = INACTIVE if active is None else _document(authenticated, active)
    if not call.accepts(SIGNED):
        return answer(document)
    return signed_answer(introspection.sign(authenticated.client, document), SIGNED)


def _introspected(call: Call, sent: Mapping[str, str]) -> tuple[AuthenticatedClient, ActiveToken | None]:
    authenticated = authenticate(call, sent)
    if "token" not in sent:
        raise OAuthError("The parameter token is missing.").with_cause("parameter_missing", expected="token")
    return authenticated, introspection.introspect(authenticated.client, sent["token"])


def _document(authenticated: AuthenticatedClient, active: ActiveToken) -> dict[str, Any]:
    document = {
        "active": True,
        "scope": " ".join(active.scopes) or None,
        "client_id": active.client_id,
        "token_type": _scheme_of(active),
        "exp": int(active.expires_at.timestamp()),
        "iat": int(active.issued_at.timestamp()),
        "sub": active.subject,
        "username": active.username,
        "aud": active.audience[0] if len(active.audience) == 1 else list(active.audience) or None,
        "iss": authenticated.client.organization.issuer,
        "jti": active.jti,
        "auth_time": int(active.auth_time.timestamp()) if active.auth_time is not None else None,
        "acr": active.acr,
        "act": active.act,
        "cnf": {"jkt": active.dpop_jkt} if active.dpop_jkt is not None else None,
        "organization_id": authenticated.client.organization.slug,
    }
    return {name: value for name, value in document.items() if value is not None}


def _scheme_of(active: ActiveToken) -> str | None:
    """How an access token is presented (RFC 6750, RFC 9449 section 6.2)."""
    if not active.is_access_token:
        return None
    return BEARER if active.dpop_jkt is None else DPOP
