"""Refusals of the OAuth wire: the registered error code, and words that quote no input (RFC 6749 section 5.2)."""

from __future__ import annotations

from app.rules.errors import DomainError
from app.rules.languages.sentences import sentence


class OAuthError(DomainError):
    """A refusal with a registered code; the face decides whether it travels in a body or by redirect."""

    code = "invalid_request"


class InvalidClient(OAuthError):
    """Client authentication failed; the same words whatever was wrong (CA-3)."""

    status = 401
    code = "invalid_client"

    def __init__(self) -> None:
        super().__init__("Client authentication failed.")


class InvalidGrant(OAuthError):
    """The code or refresh token is not one that this client can use."""

    code = "invalid_grant"

    def __init__(self, description: str = "The code or refresh token is invalid or was revoked.") -> None:
        super().__init__(description)


class InvalidScope(OAuthError):
    """More was asked for than this client may have, or nothing at all."""

    code = "invalid_scope"


class InvalidTarget(OAuthError):
    """A resource is unknown, not this client's to ask for, or beyond what was authorized (RFC 8707 section 2)."""

    code = "invalid_target"


class UnauthorizedClient(OAuthError):
    """The client may not use this grant or response type."""

    code = "unauthorized_client"

    def __init__(self, grant_type: str) -> None:
        super().__init__(f"The client or its organization does not allow the grant type {grant_type}.")
        self.with_cause("grant_type_not_allowed", received=grant_type)


class AuthorizationError(OAuthError):
    """An authorization request that is refused by redirect: client and redirect URI were right."""

    def __init__(self, code: str, description: str) -> None:
        super().__init__(description, code=code)


class UnredirectableError(OAuthError):
    """An authorization request that is refused on a page of ours: client or redirect URI is wrong (law 9)."""


class ClientBlocked(UnredirectableError):
    """An authorization request of a client that administrators blocked."""

    code = "client_blocked"

    def __init__(self, organization: str) -> None:
        super().__init__(
            sentence(
                "An administrator of %(organization)s blocked this app, so it cannot be used here.",
                organization=organization,
            )
        )
        self.with_cause("client_blocked")
