"""Authorization code with PKCE S256, for every client (RFC 6749 section 4.1, RFC 7636, RFC 9700)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from authlib.oauth2.rfc6749 import grants

from app.oauth.grants.token_request import TokenRequest
from app.oauth.wire import WireRequest
from app.operations.authorization import authorization_requests, codes
from app.operations.authorization.authorization_requests import AskedRequest
from app.operations.authorization.codes import PresentedCode, Replayed
from app.operations.directory.lookups import ClientSnapshot
from app.operations.tokens import access_tokens
from app.rules.authorization.authorization_request import AuthorizationParameters, checked
from app.rules.clients.resource_indicators import parse_resources
from app.rules.oauth_errors import (
    AuthorizationError,
    ClientBlocked,
    InvalidGrant,
    OAuthError,
    UnredirectableError,
)


class AuthorizationCodeGrant(TokenRequest, grants.AuthorizationCodeGrant):
    """Both ends of the flow; ``authorization_request`` of the rules and ``codes`` of the operations decide."""

    request: Any
    parameters: AuthorizationParameters
    repeated: frozenset[str] = frozenset()
    # How the request came: pushed by the client itself, or read before and stored since.
    is_pushed = is_stored = False
    pushed_id: UUID | None = None

    def validate_authorization_request(self) -> str:
        """Client and redirect URI first; only when both are right may an error travel by redirect (law 9).

        Raises UnredirectableError for the error page, AuthorizationError for the client.
        """
        sent = self.request.form
        client = (
            self.server.find_client(self.request.call, sent["client_id"]) if "client_id" in sent else None
        )
        if self.repeated & {"client_id", "redirect_uri"}:
            raise UnredirectableError("The app sent its client_id or redirect_uri twice.").with_cause(
                "parameter_repeated", received=", ".join(sorted(self.repeated))
            )
        if client is None:
            raise UnredirectableError("This app is not known here.")
        if client.view.is_blocked:
            raise ClientBlocked(client.view.organization.name)
        asked = self._read(client.view, sent)
        if self.is_pushed and asked.refusal is not None:
            raise asked.refusal  # Whoever pushes is told in the answer: there is no redirect to be careful with.
        sent, self.pushed_id = asked.sent, asked.pushed_id
        self.request = WireRequest(sent, self.request.call)
        self.request.call.sent = sent
        redirect_uri = sent.get("redirect_uri")
        if redirect_uri is None:
            raise UnredirectableError(
                "The app did not say where to go back to: redirect_uri is missing."
            ).with_cause("redirect_uri_missing", expected=client.view.document["redirect_uris"])
        if not client.check_redirect_uri(redirect_uri):
            raise UnredirectableError(
                "The app wants to go back to an address that is not registered for it."
            ).with_cause(
                "redirect_uri_not_registered",
                received=redirect_uri,
                expected=client.view.document["redirect_uris"],
            )
        self.request.client = client
        if not client.check_grant_type(self.GRANT_TYPE):
            raise AuthorizationError(
                "unauthorized_client", "The client may not use the authorization code flow."
            )
        if asked.refusal is not None:
            raise asked.refusal
        parameters = checked(sent, self.repeated, redirect_uri=redirect_uri, client=client.view.document)
        self.parameters = access_tokens.authorized(client.view, parameters)
        return redirect_uri

    def _read(self, client: ClientSnapshot, sent: Mapping[str, str]) -> AskedRequest:
        """The parameters that count, which may stand behind a ``request_uri`` or in a request object."""
        if self.is_stored:
            return AskedRequest(sent)
        return (
            authorization_requests.read_pushed(client, sent)
            if self.is_pushed
            else authorization_requests.read_asked(client, sent)
        )

    def create_token_response(self) -> tuple[int, dict[str, Any], list[tuple[str, str]]]:
        """One transaction, then the answer."""
        form = self.request.form
        if "code" not in form:
            raise OAuthError("The parameter code is missing.").with_cause(
                "parameter_missing", expected="code"
            )
        result = codes.redeem_code(
            self.request.client.authenticated,
            PresentedCode(
                form["code"],
                form.get("redirect_uri"),
                form.get("code_verifier"),
                parse_resources(form.get("resource", "")),
            ),
            address=self.request.call.address,
            request_id=self.request.call.request_id,
        )
        if isinstance(result, Replayed):
            raise InvalidGrant().with_cause(
                "code_reused", received="its second use; what the first gave is revoked"
            )
        return 200, result.as_document(), self.TOKEN_RESPONSE_HEADER
