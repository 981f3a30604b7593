"""Token exchange (RFC 8693). Authlib has no port of it; this one stands in its frame."""

from __future__ import annotations

from typing import Any, ClassVar

from authlib.oauth2.rfc6749 import BaseGrant, TokenEndpointMixin

from app.operations.protocol import token_exchange
from app.rules.protocol.oauth_errors import UnauthorizedClient
from app.rules.protocol.token_exchange import GRANT_TYPE, checked


class TokenExchangeGrant(BaseGrant, TokenEndpointMixin):
    """Another token for the one that the client was given; ``operations/protocol/token_exchange`` decides."""

    GRANT_TYPE = GRANT_TYPE
    TOKEN_ENDPOINT_AUTH_METHODS: ClassVar = ["client_secret_basic", "client_secret_post"]

    def validate_token_request(self) -> None:
        """The client is who it says, confidential, and may use this grant."""
        client = self.authenticate_token_endpoint_client()
        if client.view.is_public or not client.check_grant_type(self.GRANT_TYPE):
            raise UnauthorizedClient(self.GRANT_TYPE)
        self.request.client = client

    def create_token_response(self) -> tuple[int, dict[str, Any], list[tuple[str, str]]]:
        """One transaction, then the answer."""
        exchanged = token_exchange.exchange(
            self.request.client.authenticated,
            checked(self.request.form),
            address=self.request.call.address,
            request_id=self.request.call.request_id,
        )
        return 200, exchanged.as_document(), self.TOKEN_RESPONSE_HEADER
