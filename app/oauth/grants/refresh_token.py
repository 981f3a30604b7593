"""Refresh tokens (RFC 6749 section 6, RFC 9700 section 4.14)."""

from __future__ import annotations

from typing import Any

from authlib.oauth2.rfc6749 import grants

from app.oauth.grants.token_request import TokenRequest
from app.operations.tokens import refresh_tokens
from app.rules.clients.resource_indicators import parse_resources
from app.rules.oauth_errors import InvalidGrant, InvalidScope, OAuthError
from app.rules.scopes import parse_scope


class RefreshTokenGrant(TokenRequest, grants.RefreshTokenGrant):
    """The next tokens of a grant; rotation and reuse are ``operations/tokens/refresh_tokens``."""

    def create_token_response(self) -> tuple[int, dict[str, Any], list[tuple[str, str]]]:
        """One transaction, then the answer."""
        form = self.request.form
        presented = form.get("refresh_token")
        if presented is None:
            raise OAuthError("The parameter refresh_token is missing.").with_cause(
                "parameter_missing", expected="refresh_token"
            )
        scopes = parse_scope(form.get("scope", ""))
        if scopes is None:
            raise InvalidScope("The parameter scope is malformed.").with_cause(
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
            raise InvalidGrant().with_cause("refresh_reuse")
        return 200, result.as_document(), self.TOKEN_RESPONSE_HEADER
