"""Validators of access tokens for Authlib's ResourceProtector, by Bearer (RFC 6750) and by DPoP (RFC 9449)."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from authlib.integrations.flask_oauth2 import ResourceProtector
from authlib.oauth2 import rfc6750
from authlib.oauth2.rfc6749 import TokenMixin, UnsupportedTokenTypeError
from flask import request as flask_request

from app.config import current
from app.operations.clients import dpop_proofs
from app.operations.grants.grants import TokenSnapshot
from app.rules.tokens.protected_resources import PresentedToken, read_credentials

FindToken = Callable[[str], TokenSnapshot | None]


class AccessToken(TokenMixin):
    """A valid access token as Authlib needs to see it; tokens that are not valid are not found."""

    def __init__(self, value: str, view: TokenSnapshot) -> None:
        self.value, self.view = value, view
        self.scope = " ".join(view.scopes)

    def get_scope(self) -> str:
        """Return the scopes of the token."""
        return self.scope

    def is_expired(self) -> bool:
        """Return False."""
        return False

    def is_revoked(self) -> bool:
        """Return False."""
        return False

    def get_user(self) -> TokenSnapshot:
        """Return the token, which carries what is known of its user."""
        return self.view

    def get_client(self) -> Any:
        """Return the client without metadata: userinfo is signed by this service, with ``kid`` and ``typ``."""
        return SimpleNamespace(client_id=self.view.client.client_id, client_metadata={})


class BearerTokenValidator(rfc6750.BearerTokenValidator):
    """Accepts tokens that are not bound to a key."""

    def __init__(self, find_token: FindToken) -> None:
        super().__init__()
        self.find_token = find_token

    def authenticate_token(self, token_string: str) -> AccessToken | None:
        """Return the token if it is valid."""
        view = self.find_token(token_string)
        return None if view is None else AccessToken(token_string, view)

    def validate_request(self, request: Any) -> None:
        """Raise UnsupportedTokenTypeError unless the header has the syntax of RFC 6750 section 2.1."""
        header = request.headers.get("Authorization")
        if header is not None and read_credentials(header) is None:
            raise UnsupportedTokenTypeError

    def validate_token(
        self, token: AccessToken | None, scopes: Any, request: Any, *, is_proven: bool = False
    ) -> None:
        """Require the key of a bound token, then do Authlib's checks. ``is_proven`` skips a proof that was spent.

        Raises Unauthenticated and ProofRefused (DC-6).
        """
        if token is not None and not is_proven:
            dpop_proofs.require_holder(token.view, self.presented(token, request))
        super().validate_token(token, scopes, request)

    def presented(self, token: AccessToken, request: Any) -> PresentedToken:
        """Return how the token was presented."""
        return PresentedToken(token.value)


class DPoPTokenValidator(BearerTokenValidator):
    """Accepts tokens that are bound to the key of the DPoP proof."""

    TOKEN_TYPE = "dpop"

    def presented(self, token: AccessToken, request: Any) -> PresentedToken:
        """Return the token with its proof; several proofs are joined by a comma, and that is no proof."""
        return PresentedToken(
            token.value,
            True,
            proof=request.headers.get("DPoP"),
            method=request.method,
            url=current().base_url + flask_request.path,
        )


def protect(protector: ResourceProtector, find_token: FindToken) -> ResourceProtector:
    """Register both validators with the protector; ``find_token`` returns the valid token of a string."""
    protector.register_token_validator(BearerTokenValidator(find_token))
    protector.register_token_validator(DPoPTokenValidator(find_token))
    return protector
