"""Refresh tokens (RFC 6749 section 6, RFC 9700 section 4.14)."""

from __future__ import annotations

from typing import Any, ClassVar

from authlib.oauth2.rfc6749 import grants

from app.operations.protocol import refresh_tokens
from app.rules.protocol.oauth_errors import InvalidGrant, InvalidScope, OAuthRefusal, UnauthorizedClient
from app.rules.protocol.resource_indicators import parse_resources
from app.rules.protocol.scopes import parse_scope


class RefreshTokenGrant(grants.RefreshTokenGrant):
    """The next tokens of a grant; rotation and reuse are ``operations/protocol/refresh_tokens``."""

    TOKEN_ENDPOINT_AUTH_METHODS: ClassVar = ["client_secret_basic", "client_secret_post", "none"]

    def validate_token_request(self) -> None:
        """The client is who it says and may use this grant."""
        client = self.authenticate_token_endpoint_client()
        if not client.check_grant_type(self.GRANT_TYPE):
            raise UnauthorizedClient(self.GRANT_TYPE)
        self.request.client = client

    def create_token_response(self) -> tuple[int, dict[str, Any], list[tuple[str, str]]]:
        """One transaction, then the answer."""
        form = self.request.form
        presented = form.get("refresh_token")
        if presented is None:
            raise OAuthRefusal("The parameter refresh_token is missing.").because(
                "parameter_missing", expected="refresh_token"
            )
        scopes = parse_scope(form.get("scope", ""))
        if scopes is None:
            raise InvalidScope("The parameter scope is malformed.").because(
                "parameter_malformed", received="scope"
            )
        result = refresh_tokens.refresh(
            self.request.client.authenticated,
            presented,
            scopes,
            parse_resources(form.get("resource", "")),
            address=self.request.call.address,
            request_id=self.request.call.request_id,
        )
        if isinstance(result, refresh_tokens.Reused):
            raise InvalidGrant().because("refresh_reuse")
        return 200, result.as_document(), self.TOKEN_RESPONSE_HEADER
