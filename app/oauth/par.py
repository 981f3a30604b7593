"""The pushed authorization request endpoint (RFC 9126), which Authlib does not have."""

from __future__ import annotations

from typing import Any

from authlib.oauth2.rfc6749.endpoint import Endpoint, EndpointRequest

from app.oauth.authorization_request import AuthorizationRequest
from app.oauth.protocol_request import ProtocolRequest
from app.oauth.protocol_response import ProtocolResponse, error_response, with_cors, with_dpop_nonce
from app.oauth.request_parsing import parse_form
from app.oauth.server import checked_response, server
from app.operations.authorization import pushed_requests
from app.rules.clients.client_types import AUTH_METHODS
from app.rules.errors import DomainError

# They authenticate the client here and are not part of the request that it pushes.
_CREDENTIALS = frozenset({"client_secret", "client_assertion", "client_assertion_type"})


class PushedAuthorizationEndpoint(Endpoint):
    """Validates a pushed request as the authorization endpoint would, and stores it."""

    ENDPOINT_NAME = "pushed_authorization_request"

    def validate_request(self, request: Any) -> EndpointRequest:
        """Authenticate the client and validate its request by Authlib's grant."""
        client = self.server.authenticate_client(request, AUTH_METHODS, self.ENDPOINT_NAME)
        protocol = request.protocol
        sent = {name: value for name, value in protocol.parameters.items() if name not in _CREDENTIALS}
        pushed = AuthorizationRequest(protocol, sent | {"client_id": client.get_client_id()}, is_pushed=True)
        self.server.get_authorization_grant(pushed).validate_authorization_request()
        return EndpointRequest(request=pushed, client=client)

    def create_response(self, validated_request: EndpointRequest) -> tuple[int, dict[str, Any], list[Any]]:
        """Store the request and return its ``request_uri``."""
        request = validated_request.request
        authenticated = validated_request.client.authenticated
        request_uri = pushed_requests.push_request(
            request.protocol.actor_of(authenticated), authenticated, request.payload.data
        )
        expires_in = int(pushed_requests.REQUEST_LIFETIME.total_seconds())
        return 201, {"request_uri": request_uri, "expires_in": expires_in}, []


server.register_endpoint(PushedAuthorizationEndpoint)


def push(request: ProtocolRequest) -> ProtocolResponse:
    """Return a ``request_uri`` for the validated request, or what is wrong with it."""
    try:
        parse_form(request)
        response = checked_response(
            server.create_endpoint_response(PushedAuthorizationEndpoint.ENDPOINT_NAME, request)
        )
    except DomainError as error:
        response = error_response(error, request)
    return with_cors(with_dpop_nonce(response, request), request, request.authenticated)
