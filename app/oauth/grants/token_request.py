"""What every token request begins with: the client proves who it is, and may use the grant."""

from __future__ import annotations

from typing import Any

from app.rules.oauth_errors import UnauthorizedClient


class TokenRequest:
    """The first step of each grant, before Authlib's own class in the order of inheritance."""

    GRANT_TYPE: str
    request: Any
    authenticate_token_endpoint_client: Any

    def validate_token_request(self) -> None:
        """The client is known to the request. Raises InvalidClient, UnauthorizedClient."""
        client = self.authenticate_token_endpoint_client()
        if not client.check_grant_type(self.GRANT_TYPE):
            raise UnauthorizedClient(self.GRANT_TYPE)
        self.request.client = client
