"""Refusals: each has a stable code, a status and words that a stranger may read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class FieldError:
    """One wrong field of a request: its path (``redirect_uris[1]``), a stable code, and the fix in words."""

    field: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a request of a client was refused, for its makers: kept in the log of failed requests, never on the wire.

    ``code`` is one of ``rules/audit/failed_requests``. ``received`` is what came, without anything secret in it;
    ``expected`` is what would have been right, any one of them.
    """

    code: str
    received: str | None = None
    expected: tuple[str, ...] = ()


class DomainError(Exception):
    """A refusal that may be told to the caller.

    ``description`` is public: never the text of another exception, a secret or SQL. What belongs to
    the log alone is passed as the exception's ``__cause__``.
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

    def because(self, cause: str, *, received: str | None = None, expected: str | Iterable[str] = ()) -> Self:
        """The refusal itself, with its cause for the log of failed requests: ``raise InvalidGrant().with_cause(…)``."""
        self.cause = Cause(cause, received, (expected,) if isinstance(expected, str) else tuple(expected))
        return self

    @property
    def field(self) -> str | None:
        """The first wrong field, for a form that can mark one."""
        return self.errors[0].field if self.errors else None


class InvalidInput(DomainError):
    """Something in the request's content is wrong; every wrong field is named at once."""

    code = "invalid_input"

    @classmethod
    def of(cls, errors: Iterable[FieldError]) -> InvalidInput:
        """The refusal for a list of wrong fields; its description is the first one's message."""
        listed = tuple(errors)
        first = listed[0]
        return cls(f"{first.field}: {first.message}", errors=listed)


class Unauthenticated(DomainError):
    """Nobody, or nobody we know, is asking."""

    status = 401
    code = "invalid_token"


class Forbidden(DomainError):
    """The caller is known and may not; ``permission`` is what is missing."""

    status = 403
    code = "insufficient_scope"

    def __init__(self, description: str, *, permission: str | None = None, **kwargs: Any) -> None:
        super().__init__(description, **kwargs)
        self.permission = permission


class NotFound(DomainError):
    """It does not exist, was deleted, or belongs to another organization: one answer for all three."""

    status = 404
    code = "not_found"


class Conflict(DomainError):
    """The state that stands does not allow it."""

    status = 409
    code = "conflict"


class PreconditionFailed(DomainError):
    """Somebody changed it since the caller read it (RFC 9110 section 15.5.13)."""

    status = 412
    code = "precondition_failed"


class TooManyRequests(DomainError):
    """A limit is reached; ``retry_after`` is in seconds."""

    status = 429
    code = "too_many_requests"

    def __init__(self, description: str, *, retry_after: int, **kwargs: Any) -> None:
        super().__init__(description, **kwargs)
        self.retry_after = retry_after


class Unavailable(DomainError):
    """A passing fault: trying again later is safe; ``retry_after`` is in seconds."""

    status = 503
    code = "temporarily_unavailable"

    def __init__(
        self,
        description: str = "The service cannot answer right now. Try again in a moment.",
        *,
        retry_after: int = 2,
        **kwargs: Any,
    ) -> None:
        super().__init__(description, **kwargs)
        self.retry_after = retry_after
