"""Errors of the OAuth endpoints: registered codes, and descriptions that quote no input (RFC 6749 section 5.2)."""

from __future__ import annotations

from app.rules.errors import DomainError
from app.rules.languages.sentences import lazy_gettext


class OAuthError(DomainError):
    """An error with a registered code. The interface decides whether it is sent in a body or by redirect."""

    code = "invalid_request"


class InvalidClient(OAuthError):
    """Client authentication failed. The description is the same whatever was wrong (CA-3)."""

    status = 401
    code = "invalid_client"

    def __init__(self) -> None:
        super().__init__("Client authentication failed.")


class InvalidGrant(OAuthError):
    """The client cannot use this code or refresh token."""

    code = "invalid_grant"

    def __init__(self, description: str = "The code or refresh token is invalid or was revoked.") -> None:
        super().__init__(description)


class InvalidScope(OAuthError):
    """The request asks for no scope, or for scopes that the client may not have."""

    code = "invalid_scope"


class InvalidTarget(OAuthError):
    """A resource is unknown, not allowed for the client, or beyond the authorization (RFC 8707 section 2)."""

    code = "invalid_target"


class UnauthorizedClient(OAuthError):
    """The client may not use this grant type or response type."""

    code = "unauthorized_client"

    def __init__(self, grant_type: str) -> None:
        super().__init__(f"The client or its organization does not allow the grant type {grant_type}.")
        self.with_cause("grant_type_not_allowed", received=grant_type)


class AuthorizationError(OAuthError):
    """An authorization request that is rejected by redirect: client and redirect URI are valid."""

    def __init__(self, code: str, description: str) -> None:
        super().__init__(description, code=code)


class UnredirectableError(OAuthError):
    """An authorization request that is rejected on an error page: client or redirect URI is invalid."""


class ClientBlocked(UnredirectableError):
    """An authorization request of a client that an administrator blocked."""

    code = "client_blocked"

    def __init__(self, organization: str) -> None:
        super().__init__(
            lazy_gettext(
                "An administrator of %(organization)s has blocked this app, so you can't use it here.",
                organization=organization,
            )
        )
        self.with_cause("client_blocked")
