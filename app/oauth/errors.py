"""Authlib's errors in the words of this service: no input is quoted, and each has a cause for the log."""

from __future__ import annotations

from typing import Any

from authlib.oauth2 import OAuth2Error
from authlib.oauth2.rfc6749 import (
    AccessDeniedError,
    InvalidClientError,
    InvalidGrantError,
    InvalidRequestError,
    InvalidScopeError,
    MissingAuthorizationError,
    UnauthorizedClientError,
    UnsupportedGrantTypeError,
    UnsupportedResponseTypeError,
    UnsupportedTokenTypeError,
)
from authlib.oauth2.rfc6750 import InsufficientScopeError, InvalidTokenError
from authlib.oauth2.rfc8628 import AuthorizationPendingError, SlowDownError
from authlib.oauth2.rfc8628.errors import ExpiredTokenError
from authlib.oidc.core.errors import LoginRequiredError

from app.rules.clients.client_types import AUTHORIZATION_CODE, DEVICE_CODE, REFRESH_TOKEN
from app.rules.errors import (
    AuthorizationError,
    DomainError,
    Forbidden,
    InvalidClient,
    InvalidGrant,
    InvalidScope,
    OAuthError,
    Unauthenticated,
    UnauthorizedClient,
)

MISSING_TOKEN = "An access token is required."
# The parameter without which Authlib rejects a request, by grant type; elsewhere it is the token.
_REQUIRED = {AUTHORIZATION_CODE: "code", REFRESH_TOKEN: "refresh_token", DEVICE_CODE: "device_code"}

_AUTHORIZATION = frozenset({"authorize", "par"})


class CommittedRefusal(OAuth2Error):
    """An error that an extension point raises after it wrote something that must be committed.

    Authlib turns it into a response, so the transaction around it ends normally. Any other error is raised as it is:
    it passes through Authlib and rolls the transaction back.
    """

    def __init__(self, refusal: OAuthError) -> None:
        super().__init__()
        self.refusal = refusal


def refusal_of(error: OAuth2Error, request: Any) -> DomainError:
    """Convert an error of Authlib to an OAuthError; ``request`` is the one that Authlib handled."""
    if isinstance(error, CommittedRefusal):
        return error.refusal
    for kind, make in _REFUSALS.items():
        if isinstance(error, kind):
            return make(request)
    return OAuthError(error.description or "The request is malformed.", code=error.error)


def _missing_parameter(request: Any) -> DomainError:
    name = _REQUIRED.get(request.payload.data.get("grant_type"), "token")
    if name in request.payload.data:
        return OAuthError("The request is malformed.")
    return OAuthError(f"The parameter {name} is missing.").with_cause("parameter_missing", expected=name)


def _unsupported_grant(request: Any) -> DomainError:
    grant_type = request.payload.grant_type
    if grant_type is None:
        return OAuthError("The parameter grant_type is missing.").with_cause(
            "parameter_missing", expected="grant_type"
        )
    return OAuthError("The grant_type is not supported.", code="unsupported_grant_type").with_cause(
        "grant_type_unsupported", received=grant_type
    )


def _unsupported_response(request: Any) -> DomainError:
    if request.refusal is not None:
        return request.refusal
    received = request.protocol.parameters.get("response_type")
    if received is None:
        return AuthorizationError(
            "invalid_request", "The parameter response_type is missing. It must be code."
        ).with_cause("parameter_missing", expected="response_type=code")
    return AuthorizationError("unsupported_response_type", "The response_type must be code.").with_cause(
        "response_type_unsupported", received=received, expected="code"
    )


def _unauthorized_client(request: Any) -> DomainError:
    if request.protocol.endpoint in _AUTHORIZATION:
        return AuthorizationError(
            "unauthorized_client", "The client is not allowed to use the authorization code flow."
        )
    return UnauthorizedClient(request.payload.grant_type)


def _denied(request: Any) -> DomainError:
    if request.protocol.endpoint in _AUTHORIZATION:
        return AuthorizationError("access_denied", "The user denied the request.")
    return OAuthError("The user denied the request.", code="access_denied").with_cause("device_refused")


def _expired(request: Any) -> DomainError:
    return OAuthError("The device code has expired.", code="expired_token").with_cause(
        "device_code_expired", expected=f"{request.credential.lifetime_seconds} s"
    )


def _slow_down(request: Any) -> DomainError:
    return OAuthError("The device polls too often.", code="slow_down").with_cause(
        "device_too_fast", expected=f"{request.credential.slower_interval} s between two requests"
    )


_REFUSALS = {
    UnsupportedGrantTypeError: _unsupported_grant,
    UnsupportedResponseTypeError: _unsupported_response,
    UnauthorizedClientError: _unauthorized_client,
    InvalidClientError: lambda _: InvalidClient().with_cause("auth_method_mismatch"),
    InvalidGrantError: lambda _: InvalidGrant("The token was not issued to this client.").with_cause(
        "token_not_own"
    ),
    InvalidScopeError: lambda _: InvalidScope("The scope must not exceed what the user allowed."),
    InvalidRequestError: _missing_parameter,
    AccessDeniedError: _denied,
    ExpiredTokenError: _expired,
    SlowDownError: _slow_down,
    AuthorizationPendingError: lambda _: OAuthError(
        "The user has not entered the code and decided yet.", code="authorization_pending"
    ),
    LoginRequiredError: lambda _: AuthorizationError(
        "login_required", "The user is not signed in, or the sign-in does not meet the request."
    ),
    InvalidTokenError: lambda _: Unauthenticated("The access token is invalid, expired or revoked."),
    MissingAuthorizationError: lambda _: Unauthenticated(MISSING_TOKEN),
    UnsupportedTokenTypeError: lambda _: Unauthenticated(MISSING_TOKEN),
    InsufficientScopeError: lambda _: Forbidden("The scope openid is required.", permission="openid"),
}
