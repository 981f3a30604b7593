"""Client credentials (RFC 6749 section 4.4)."""

from __future__ import annotations

from typing import Any

from authlib.oauth2.rfc6749 import grants

from app.oauth.grants.token_request import TokenRequest
from app.operations.tokens import tokens
from app.rules.clients.client_scopes import scopes_for_itself
from app.rules.clients.resource_indicators import parse_resources


class ClientCredentialsGrant(TokenRequest, grants.ClientCredentialsGrant):
    """An access token for the client itself: no user, no refresh token, no identity scopes (CC-1)."""

    def create_token_response(self) -> tuple[int, dict[str, Any], list[tuple[str, str]]]:
        """One durable statement, then the answer."""
        client = self.request.client
        form = self.request.form
        scopes = scopes_for_itself(form.get("scope", ""), client.view.document["scopes"])
        resources = parse_resources(form.get("resource", ""))
        answer = tokens.issue_to_client(client.authenticated, scopes, resources)
        return 200, answer.as_document(), self.TOKEN_RESPONSE_HEADER
