"""Userinfo (OpenID Connect Core section 5.3)."""

from __future__ import annotations

from typing import Any

from authlib.integrations.flask_oauth2 import ResourceProtector
from authlib.oauth2.rfc6749 import JsonRequest
from authlib.oidc.core import UserInfoEndpoint as AuthlibUserInfoEndpoint

from app.oauth.errors import MISSING_TOKEN
from app.oauth.protocol_request import ProtocolRequest, current_request
from app.oauth.protocol_response import REALM, ProtocolResponse, error_response, with_cors, with_dpop_nonce
from app.oauth.request_parsing import FORM, parse_form, require_https
from app.oauth.server import checked_response, server
from app.operations.clients.dpop_proofs import ProofRefused
from app.operations.directory.snapshots import AuthenticatedClient
from app.operations.grants.grants import TokenSnapshot
from app.operations.store.request_limits import require_request_allowed
from app.operations.tokens import id_tokens
from app.rules.errors import DomainError, Forbidden, OAuthError, Unauthenticated
from app.web.bearer import protect
from app.web.headers import challenges, is_by_dpop

_JWT = ("Content-Type", "application/jwt")


class UserInfoProtector(ResourceProtector):
    """Accepts the token in a form body too (RFC 6750 section 2.2), which OpenID Connect asks for."""

    def acquire_token(self, scopes: Any = None, **claims: Any) -> Any:
        """Return the valid token of the current request; the stock method needs Flask, and the fast path has none."""
        request = current_request()
        headers = {"Authorization": request.authorization, "DPoP": request.dpop_proof}
        sent = {name: value for name, value in headers.items() if value is not None}
        return self.validate_request([scopes], JsonRequest(request.method, request.url, sent), **claims)

    def parse_request_authorization(self, request: Any) -> tuple[Any, str]:
        """Return the validator and the token. Raises OAuthError if the token was sent twice."""
        protocol = current_request()
        is_form = protocol.method == "POST" and protocol.content_type == FORM
        token = parse_form(protocol).get("access_token", "") if is_form else ""
        if protocol.authorization is None and token:
            return self.get_token_validator("bearer"), token
        if token:
            raise OAuthError("The access token was sent twice.")
        return super().parse_request_authorization(request)


class UserInfoEndpoint(AuthlibUserInfoEndpoint):
    """The claims that the token's scopes release."""

    def __call__(self, request: Any) -> tuple[int, Any, Any]:
        """Return Authlib's response, signed if the client registered that: Authlib signs without ``kid``."""
        status, claims, headers = super().__call__(request)
        signed = id_tokens.sign(request.protocol.authenticated.client, claims)
        return (status, claims, headers) if signed is None else (200, signed, [_JWT])

    def generate_user_info(self, user: TokenSnapshot, scope: str) -> dict[str, Any]:
        """Return the claims. Raises Unauthenticated for a token that is meant for another resource, TooManyRequests."""
        client, request = user.client, current_request()
        require_request_allowed(
            client.organization.id,
            client.organization.settings["limits"],
            client.client_id,
            request.ip_address,
        )
        claims = id_tokens.claims_of(user)
        request.authenticated = AuthenticatedClient(client, None)
        return claims


def find_user_token(token: str) -> TokenSnapshot | None:
    """Return the valid token of a user, of the organization in the path if there is one."""
    return id_tokens.find_user_token(token, organization_id=current_request().organization_id)


_protector = protect(UserInfoProtector(), find_user_token, lambda: current_request().path)
server.register_endpoint(UserInfoEndpoint(resource_protector=_protector))


def userinfo(request: ProtocolRequest) -> ProtocolResponse:
    """Return the claims; the token is in the header, or in a form body."""
    try:
        require_https(request)
        response = checked_response(server.create_endpoint_response("userinfo", request))
    except (Unauthenticated, Forbidden) as error:
        response = error_response(error, request)
        # Without a token there is no error code (RFC 6750 section 3.1).
        why = {} if error.description == MISSING_TOKEN else {"error": error.code}
        for challenge in challenges(f'realm="{REALM}"', why, by_dpop=is_by_dpop(request.authorization)):
            response.headers.append(("WWW-Authenticate", challenge))
        if isinstance(error, ProofRefused):
            # The client's pages must read the nonce to try again.
            request.authenticated = AuthenticatedClient(error.client, None)
    except DomainError as error:
        response = error_response(error, request)
    return with_cors(with_dpop_nonce(response, request), request, request.authenticated)
