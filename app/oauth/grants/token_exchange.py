"""Token exchange (RFC 8693). Authlib has no port of it; this one stands in its frame."""

from __future__ import annotations

from typing import Any

from authlib.oauth2.rfc6749 import BaseGrant, TokenEndpointMixin

from app.oauth.grants.token_request import TokenRequest
from app.operations.tokens import token_exchange
from app.rules.tokens.token_exchange import GRANT_TYPE, checked


class TokenExchangeGrant(TokenRequest, BaseGrant, TokenEndpointMixin):
    """Another token for the one that the client was given; ``operations/tokens/token_exchange`` decides."""

    GRANT_TYPE = GRANT_TYPE

    def create_token_response(self) -> tuple[int, dict[str, Any], list[tuple[str, str]]]:
        """One transaction, then the answer."""
        exchanged = token_exchange.exchange(
            self.request.client.authenticated,
            checked(self.request.form),
            address=self.request.call.address,
            request_id=self.request.call.request_id,
        )
        return 200, exchanged.as_document(), self.TOKEN_RESPONSE_HEADER
