"""The authorization server: read it to know what is supported; discovery is derived from it.

Authlib is the frame: it chooses the grant, runs its steps in the standard's order and gives errors their form. The
steps in which security rests, each one operation, are ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from authlib.integrations.flask_oauth2 import AuthorizationServer as AuthlibServer
from flask import Flask

from app.oauth.answer import Answer, answer
from app.oauth.authentication import authenticate
from app.oauth.call import Call
from app.oauth.client import ProtocolClient
from app.oauth.dpop import prove
from app.oauth.grants.authorization_code import AuthorizationCodeGrant
from app.oauth.grants.client_credentials import ClientCredentialsGrant
from app.oauth.grants.device_code import DeviceCodeGrant
from app.oauth.grants.refresh_token import RefreshTokenGrant
from app.oauth.grants.token_exchange import TokenExchangeGrant
from app.oauth.wire import WireRequest
from app.operations.authorization import authorization_requests
from app.rules.authorization.authorization_request import RESPONSE_MODES as RESPONSE_MODES

GRANTS = (
    AuthorizationCodeGrant,
    ClientCredentialsGrant,
    RefreshTokenGrant,
    DeviceCodeGrant,
    TokenExchangeGrant,
)
TOKEN_ENDPOINT_AUTH_METHODS = ("client_secret_basic", "client_secret_post", "private_key_jwt", "none")
GRANT_TYPES = tuple(grant.GRANT_TYPE for grant in GRANTS)
_GRANT_OF: dict[str, Any] = {grant.GRANT_TYPE: grant for grant in GRANTS}
RESPONSE_TYPES = ("code",)


class AuthorizationServer(AuthlibServer):
    """Authlib's server over our requests, clients and answers. It keeps no state of a request or organization."""

    def load_config(self, config: Mapping[str, Any]) -> None:
        """Nothing to load: lifetimes and scopes are the organization's own."""

    def create_oauth2_request(self, request: WireRequest) -> WireRequest:
        """Requests were read by ``wire`` before Authlib is called."""
        return request

    def find_client(self, call: Call, client_id: str) -> ProtocolClient | None:
        """The client that may send people here, as Authlib wants to see it."""
        view = authorization_requests.find_asking_client(
            client_id, organization_id=call.organization_id, address=call.address
        )
        return None if view is None else ProtocolClient(view)

    def authenticate_client(
        self, request: WireRequest, methods: Any, endpoint: str = "token"
    ) -> ProtocolClient:
        """The client that authenticated, by its registered method alone, and the key that its request proves."""
        proven = prove(request.call, authenticate(request.call, request.form))
        return ProtocolClient(proven.client, proven)

    def get_token_grant(self, request: WireRequest) -> Any:
        """The grant of the request's type, one of ``GRANT_TYPES``; Authlib would ask each in turn."""
        return _GRANT_OF[request.form["grant_type"]](request, self)

    def get_authorization_grant(self, request: WireRequest) -> AuthorizationCodeGrant:
        """There is one; it refuses other response types in the words of ``rules``, which quote no input."""
        return AuthorizationCodeGrant(request, self)

    def send_signal(self, name: str, *args: Any, **kwargs: Any) -> None:
        """Nobody listens: what must follow stands in the operation."""

    def handle_response(self, status: int, body: Any, headers: Any) -> Answer:
        """The answer of the token endpoint; Authlib's headers are those of ``answer``."""
        return answer(body, status)


server = AuthorizationServer()


def register(app: Flask) -> None:
    """The server knows its grants."""
    server.init_app(app)
    for grant in GRANTS:
        server.register_grant(grant)
