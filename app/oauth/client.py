"""A client as Authlib wants to see it."""

from __future__ import annotations

from authlib.oauth2.rfc6749 import ClientMixin

from app.operations.directory.lookups import AuthenticatedClient, ClientSnapshot
from app.rules.clients.grant_use import can_use_grant
from app.rules.clients.redirect_uris import match_redirect_uri
from app.rules.oauth_errors import InvalidClient
from app.rules.scopes import disallowed_scopes, parse_scope


class ProtocolClient(ClientMixin):
    """Answers Authlib's questions from the frozen view; ``authenticated`` once it has proven who it is."""

    def __init__(self, view: ClientSnapshot, authenticated: AuthenticatedClient | None = None) -> None:
        self.view = view
        self._authenticated = authenticated

    @property
    def authenticated(self) -> AuthenticatedClient:
        """What operations take. Raises InvalidClient for one that was only looked up."""
        if self._authenticated is None:
            raise InvalidClient
        return self._authenticated

    def get_client_id(self) -> str:
        """The public ``client_id``."""
        return self.view.client_id

    def get_default_redirect_uri(self) -> None:
        """None: ``redirect_uri`` is required on every request (RU-4)."""

    def get_allowed_scope(self, scope: str) -> str | None:
        """The scope, or None when any of it was not registered: Authlib would drop it in silence."""
        asked = parse_scope(scope or "")
        return (
            scope
            if asked is not None and not disallowed_scopes(asked, self.view.document["scopes"])
            else None
        )

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        """Whether the URI is registered (RU-1, RU-2)."""
        registered = self.view.document["redirect_uris"]
        return match_redirect_uri(redirect_uri, registered, client_type=self.view.type) is not None

    def check_client_secret(self, client_secret: str) -> bool:
        """Never asked: ``operations/clients/client_authentication`` decides."""
        return False

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        """The registered method, at every endpoint alike (CA-7)."""
        return bool(method == self.view.document["token_endpoint_auth_method"])

    def check_response_type(self, response_type: str) -> bool:
        """Whether the client may use the authorization endpoint."""
        return response_type == "code" and self.check_grant_type("authorization_code")

    def check_grant_type(self, grant_type: str) -> bool:
        """Whether client and organization both allow the grant type."""
        return can_use_grant(
            grant_type,
            document=self.view.document,
            settings=self.view.organization.settings,
            is_public=self.view.is_public,
        )
