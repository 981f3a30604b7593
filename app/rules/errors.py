"""Errors: each has a stable code, an HTTP status and a description that any caller may read; OAuth errors included."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Self

from msgspec import Struct

from app.rules.languages.translation import lazy_gettext

# Of one request. A body of 64 KiB can have thousands, and all of them would make a response ten times as long.
MAX_ERRORS = 100


class FieldError(Struct, frozen=True):
    """One invalid field of a request: its path (``redirect_uris[1]``), a stable code, and how to fix it."""

    field: str
    code: str
    message: str


class Cause(Struct, frozen=True):
    """The reason why a client's request was rejected, for the client's developers.

    It is logged and never part of the OAuth response.

    ``code`` is one of ``rules/audit/failed_requests``. ``received`` is what was sent, without secrets. ``expected``
    lists values any of which would have been accepted.
    """

    code: str
    received: str | None = None
    expected: tuple[str, ...] = ()


class DomainError(Exception):
    """An error whose description may be shown to the caller.

    ``description`` is public: never the text of another exception, a secret or SQL. Pass details for the log as the
    exception's ``__cause__``.
    """

    status = 400
    code = "invalid_request"
    cause: Cause | None = None

    def __init__(
        self,
        description: str,
        *,
        code: str | None = None,
        field: str | None = None,
        errors: Iterable[FieldError] = (),
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(description)
        self.description = description
        if code is not None:
            self.code = code
        self.errors = tuple(errors)
        if field is not None and not self.errors:
            self.errors = (FieldError(field, self.code, description),)
        self.details = dict(details or {})

    def with_cause(
        self, cause: str, *, received: str | None = None, expected: str | Iterable[str] = ()
    ) -> Self:
        """Attach the cause for the log of failed requests, as in ``raise InvalidGrant().with_cause(…)``."""
        self.cause = Cause(cause, received, (expected,) if isinstance(expected, str) else tuple(expected))
        return self

    @property
    def field(self) -> str | None:
        """The first invalid field, for a form that marks only one."""
        return self.errors[0].field if self.errors else None


class HasDefaultText(DomainError):
    """An error whose class has a description, which the caller can replace."""

    default_description: str

    def __init__(self, description: str | None = None, **options: Any) -> None:
        super().__init__(self.default_description if description is None else description, **options)


class InvalidInput(DomainError):
    """The content of the request is invalid. Every invalid field is listed at once, up to ``MAX_ERRORS``."""

    code = "invalid_input"

    @classmethod
    def of(cls, errors: Iterable[FieldError]) -> InvalidInput:
        """Return the error for a list of invalid fields, described by the message of the first."""
        listed = tuple(islice(errors, MAX_ERRORS))
        first = listed[0]
        return cls(f"{first.field}: {first.message}", errors=listed)


class Unauthenticated(DomainError):
    """The caller is not authenticated."""

    status = 401
    code = "invalid_token"


class Forbidden(DomainError):
    """The caller is known but lacks ``permission``."""

    status = 403
    code = "insufficient_scope"

    def __init__(self, description: str, *, permission: str | None = None, **kwargs: Any) -> None:
        super().__init__(description, **kwargs)
        self.permission = permission


class NotFound(DomainError):
    """The object does not exist, was deleted, or belongs to another organization. Callers cannot tell which."""

    status = 404
    code = "not_found"


class Conflict(DomainError):
    """The current state does not allow the operation."""

    status = 409
    code = "conflict"


class Busy(Conflict):
    """Other requests change the same object all the time."""

    code = "busy"


class PreconditionFailed(DomainError):
    """The object was changed since the caller read it (RFC 9110 section 15.5.13)."""

    status = 412
    code = "precondition_failed"


class TooManyRequests(DomainError):
    """A rate limit was reached. ``retry_after`` is in seconds."""

    status = 429
    code = "too_many_requests"

    def __init__(self, description: str, *, retry_after: int, **kwargs: Any) -> None:
        super().__init__(description, **kwargs)
        self.retry_after = retry_after


class Unavailable(HasDefaultText):
    """A temporary fault. The caller can safely try again after ``retry_after`` seconds."""

    status = 503
    code = "temporarily_unavailable"
    default_description = "The service cannot answer right now. Try again in a moment."
    retry_after = 2

    def __init__(self, description: str | None = None, *, retry_after: int | None = None) -> None:
        super().__init__(description)
        if retry_after is not None:
            self.retry_after = retry_after


class OrganizationMoving(Unavailable):
    """The organization is being moved to another cell, so it is not served for some seconds.

    Work on several organizations continues without this one.
    """

    default_description = "This organization is being moved. Try again in a moment."


class OrganizationMoved(OrganizationMoving):
    """Another cell serves the organization. A retry succeeds once the proxy in front knows."""

    code = "organization_moved"
    default_description = (
        "This organization has moved to another server of this service. Try again in a moment."
    )
    retry_after = 1


class OAuthError(DomainError):
    """An error with a registered code. The interface decides whether it is sent in a body or by redirect."""

    code = "invalid_request"


class InvalidClient(HasDefaultText, OAuthError):
    """Client authentication failed. The description is the same whatever was wrong (CA-3).

    Only a client that sent its secret gets a more specific message.
    """

    status = 401
    code = "invalid_client"
    default_description = "Client authentication failed."


class InvalidGrant(HasDefaultText, OAuthError):
    """The client cannot use this code or refresh token."""

    code = "invalid_grant"
    default_description = "The code or refresh token is invalid or was revoked."


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
