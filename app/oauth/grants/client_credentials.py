"""Client credentials (RFC 6749 section 4.4)."""

from __future__ import annotations

from typing import Any, ClassVar

from authlib.oauth2.rfc6749 import grants

from app.operations.protocol import tokens
from app.rules.protocol.oauth_errors import UnauthorizedClient
from app.rules.protocol.resource_indicators import parse_resources
from app.rules.registration.client_scopes import scopes_for_itself


class ClientCredentialsGrant(grants.ClientCredentialsGrant):
    """An access token for the client itself: no user, no refresh token, no identity scopes (CC-1)."""

    TOKEN_ENDPOINT_AUTH_METHODS: ClassVar = ["client_secret_basic", "client_secret_post"]

    def validate_token_request(self) -> None:
        """The client is who it says, confidential, and may use this grant."""
        client = self.authenticate_token_endpoint_client()
        if client.view.is_public or not client.check_grant_type(self.GRANT_TYPE):
            raise UnauthorizedClient(self.GRANT_TYPE)
        self.request.client = client

    def create_token_response(self) -> tuple[int, dict[str, Any], list[tuple[str, str]]]:
        """One durable statement, then the answer."""
        client = self.request.client
        form = self.request.form
        scopes = scopes_for_itself(form.get("scope", ""), client.view.document["scopes"])
        resources = parse_resources(form.get("resource", ""))
        answer = tokens.issue_to_client(client.authenticated, scopes, resources)
        return 200, answer.as_document(), self.TOKEN_RESPONSE_HEADER
