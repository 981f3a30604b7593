"""The authorization server: Authlib's, with everything that is registered with it. Discovery is derived from it.

Extension points are in ``grants`` and in the module of each endpoint; behind them operations decide. Tenants are
never stored here: each request knows its organization.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from authlib.integrations import flask_oauth2
from flask import Flask

from app.oauth import grants
from app.oauth.authorization_request import RequestResolver
from app.oauth.client_authentication import ProtocolClient, auth_method
from app.oauth.errors import refusal_of
from app.oauth.protocol_request import current_request
from app.oauth.protocol_response import empty_response, json_response, jwt_response, redirect_response
from app.oauth.request_parsing import ParsedOAuthRequest
from app.rules.clients.client_types import AUTH_METHODS
from app.rules.errors import DomainError

# Each grant with its extensions.
GRANTS: tuple[tuple[Any, list[Any]], ...] = (
    (
        grants.AuthorizationCodeGrant,
        [grants.RequestPolicy(), grants.CodeChallengeS256(), grants.OpenIDCodeFlow()],
    ),
    (grants.ClientCredentialsGrant, []),
    (grants.RefreshTokenGrant, []),
    (grants.DeviceCodeGrant, [grants.OpenIDDevice()]),
    (grants.TokenExchangeGrant, []),
)
GRANT_TYPES: tuple[str, ...] = tuple(grant.GRANT_TYPE for grant, _ in GRANTS)
RESPONSE_TYPES = ("code",)


class AuthorizationServer(flask_oauth2.AuthorizationServer):
    """Authlib's Flask server over strictly parsed requests.

    Errors come back as refusals, which ``checked_response`` raises once the transaction around Authlib has ended.
    """

    def create_oauth2_request(self, request: Any) -> ParsedOAuthRequest:
        """Return the parsed request; Authlib's own would merge query and form."""
        return request if isinstance(request, ParsedOAuthRequest) else ParsedOAuthRequest(request)

    def create_json_request(self, request: Any) -> Any:
        """Return the request: registration parses its JSON strictly."""
        return request

    def handle_response(self, status: int, payload: Any, headers: Any) -> Any:
        """Return JSON or a redirect with this service's headers, and Flask's response for a page."""
        if isinstance(payload, dict):
            return json_response(payload, status)
        if status == HTTPStatus.NO_CONTENT:
            return empty_response()
        if status == HTTPStatus.SEE_OTHER:
            return redirect_response(dict(headers)["Location"])
        media_type = dict(headers).get("Content-Type", "")
        if media_type.endswith("jwt"):
            return jwt_response(payload, media_type)
        return super().handle_response(status, payload, headers)

    def handle_error_response(self, request: Any, error: Any) -> DomainError:
        """Convert the error to an OAuthError: Authlib's text may quote input, and the log needs a cause."""
        return refusal_of(error, request)


def query_client(client_id: str) -> ProtocolClient | None:
    """Return the client of the current request, which was found before Authlib was called."""
    client = current_request().client
    return client if client is not None and client.get_client_id() == client_id else None


def checked_response(result: Any) -> Any:
    """Return Authlib's response, or raise the refusal that it is."""
    if isinstance(result, DomainError):
        raise result
    return result


def register(app: Flask) -> None:
    """Give Authlib the extension points: finding clients, authenticating them, generating and storing tokens."""
    server.init_app(app, query_client=query_client, save_token=grants.save_token)
    server.register_token_generator("default", grants.generate_user_token)
    server.register_token_generator("client_credentials", grants.generate_client_token)
    server.register_token_generator("refresh_token", grants.generate_refreshed_token)
    for method in AUTH_METHODS:
        server.register_client_auth_method(method, auth_method(method))


def _new_server() -> AuthorizationServer:
    made = AuthorizationServer()
    for grant, extensions in GRANTS:
        made.register_grant(grant, extensions)
    made.register_extension(RequestResolver)
    return made


server = _new_server()
