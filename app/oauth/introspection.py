"""Token introspection (RFC 7662) and revocation (RFC 7009).

The JSON form of revocation belongs to the management API.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from authlib.oauth2.rfc6749 import TokenMixin
from authlib.oauth2.rfc7009 import RevocationEndpoint as AuthlibRevocationEndpoint
from authlib.oauth2.rfc7662 import IntrospectionEndpoint as AuthlibIntrospectionEndpoint

from app.oauth.client_authentication import ProtocolClient, authenticate
from app.oauth.client_log import record_refusal
from app.oauth.protocol_request import ProtocolRequest, current_request
from app.oauth.protocol_response import ProtocolResponse, error_response, with_cors
from app.oauth.request_parsing import parse_form
from app.oauth.server import checked_response, server
from app.operations.store.transactions import transaction
from app.operations.tokens import introspection, revocation
from app.operations.tokens.access_tokens import BEARER, DPOP
from app.operations.tokens.introspection import ActiveToken
from app.operations.tokens.revocation import RevocableToken
from app.rules.clients.client_types import AUTH_METHODS, NONE
from app.rules.errors import DomainError, HasDefaultText, OAuthError
from app.rules.languages.translation import lazy_gettext

# The media type of a signed response (RFC 9701 section 4).
SIGNED = "application/token-introspection+jwt"


class NotForCaller(HasDefaultText, OAuthError):
    """The token is valid, and the caller may not know it: the response says that it is not active."""

    status = 200
    code = "inactive"
    default_description = lazy_gettext("The token is not active.")


class IntrospectedToken(TokenMixin):
    """A valid token as Authlib needs to see it; tokens that are not valid are not found."""

    def __init__(self, active: ActiveToken) -> None:
        self.active = active

    def is_expired(self) -> bool:
        """Return False."""
        return False

    def is_revoked(self) -> bool:
        """Return False."""
        return False


class IntrospectionEndpoint(AuthlibIntrospectionEndpoint):
    """Introspection for confidential clients (IT-1); a public client could be anybody."""

    CLIENT_AUTH_METHODS = tuple(method for method in AUTH_METHODS if method != NONE)

    def query_token(self, token_string: str, token_type_hint: str | None) -> IntrospectedToken | None:
        """Return the token if it is valid. Unknown, expired, revoked and malformed ones are alike (IT-2)."""
        client = current_request().client
        active = introspection.find_active(client.view, token_string) if client is not None else None
        return None if active is None else IntrospectedToken(active)

    def check_permission(self, token: IntrospectedToken, client: ProtocolClient, request: Any) -> bool:
        """Return whether the token is the client's own or meant for one of its resources (IT-1)."""
        if introspection.may_see(client.view, token.active):
            return True
        # The response is that for an unknown token (IT-2). Only the caller's own log says why.
        record_refusal(
            NotForCaller().with_cause(
                "introspection_not_allowed",
                received=" ".join(token.active.audience) or None,
                expected=client.view.document.get("resources", ()),
            ),
            request.protocol,
        )
        return False

    def introspect_token(self, token: IntrospectedToken) -> dict[str, Any]:
        """Return the members of the response."""
        active, organization = token.active, token.active.client.organization
        document = active.load_claims() | {
            "active": True,
            "scope": " ".join(active.scopes) or None,
            "client_id": active.client.client_id,
            "token_type": _type_of(active),
            "exp": int(active.expires_at.timestamp()),
            "iat": int(active.issued_at.timestamp()),
            "sub": active.subject,
            "username": active.username,
            "aud": active.audience[0] if len(active.audience) == 1 else list(active.audience) or None,
            "iss": organization.issuer,
            "jti": active.jti,
            "auth_time": _seconds(active.auth_time),
            "acr": active.acr,
            "act": active.act,
            "cnf": {"jkt": active.dpop_jkt} if active.dpop_jkt is not None else None,
            "organization_id": organization.slug,
        }
        return {name: value for name, value in document.items() if value is not None}

    def create_endpoint_response(self, request: Any) -> tuple[int, Any, Any]:
        """Return Authlib's response, signed if the client accepts that: Authlib has no RFC 9701."""
        status, document, headers = super().create_endpoint_response(request)
        if request.protocol.accepts(SIGNED):
            return status, introspection.sign(request.client.view, document), [("Content-Type", SIGNED)]
        return status, document, headers


class FoundToken(TokenMixin):
    """A token to revoke as Authlib needs to see it."""

    def __init__(self, found: RevocableToken) -> None:
        self.found = found

    def check_client(self, client: ProtocolClient) -> bool:
        """Return whether the token was issued to the client."""
        return self.found.client_id == client.view.id


class RevocationEndpoint(AuthlibRevocationEndpoint):
    """Revocation of a client's own tokens."""

    CLIENT_AUTH_METHODS = AUTH_METHODS

    def query_token(self, token_string: str, token_type_hint: str | None) -> FoundToken | None:
        """Return the organization's token. The string itself tells its type, so the hint is not needed (RV-3)."""
        found = revocation.find_token(self._actor(), token_string)
        return None if found is None else FoundToken(found)

    def revoke_token(self, token: FoundToken, request: Any) -> None:
        """Revoke an access token, or a refresh token with its whole grant."""
        revocation.revoke_found(self._actor(), token.found)

    def _actor(self) -> Any:
        request = current_request()
        return request.actor_of(authenticate(request).authenticated)


server.register_endpoint(IntrospectionEndpoint)
server.register_endpoint(RevocationEndpoint)


def introspect(request: ProtocolRequest) -> ProtocolResponse:
    """Return what the token is, to a client that may know."""
    try:
        _parse(request)
        return checked_response(server.create_endpoint_response("introspection", request))
    except DomainError as error:
        return error_response(error, request)


def revoke(request: ProtocolRequest) -> ProtocolResponse:
    """Return 200 once the token is revoked, and for every string that is no token (RFC 7009 section 2.2)."""
    try:
        _parse(request)
        # Before the transaction, as ``authenticate`` requires.
        authenticate(request)
        response = checked_response(_revoke(request))
    except DomainError as error:
        response = error_response(error, request)
    return with_cors(response, request, request.authenticated)


@transaction
def _revoke(request: ProtocolRequest) -> Any:
    return server.create_endpoint_response("revocation", request)


def _parse(request: ProtocolRequest) -> None:
    """Parse the form without ``token_type_hint``: Authlib answers an unknown hint with 401 (RFC 7009 section 2.1)."""
    parameters = parse_form(request)
    if "token_type_hint" in parameters:
        request.parameters = {name: value for name, value in parameters.items() if name != "token_type_hint"}


def _type_of(active: ActiveToken) -> str | None:
    """Return how an access token is presented (RFC 6750, RFC 9449 section 6.2)."""
    if not active.is_access_token:
        return None
    return BEARER if active.dpop_jkt is None else DPOP


def _seconds(time: datetime | None) -> int | None:
    return None if time is None else int(time.timestamp())
