"""Scopes that a client may request, for itself or for a user."""

from __future__ import annotations

from collections.abc import Collection

from app.rules.oauth_errors import InvalidScope
from app.rules.scopes import IDENTITY_SCOPES, disallowed_scopes, parse_scope


def scopes_for_itself(requested: str, registered: Collection[str]) -> tuple[str, ...]:
    """Return the scopes of a client_credentials token: the requested ones, or all that the client may have.

    Identity scopes are omitted, because there is no user. Raises InvalidScope for scopes that are not registered.
    """
    own = tuple(scope for scope in registered if scope not in IDENTITY_SCOPES)
    scopes = parse_scope(requested)
    if scopes is None:
        raise InvalidScope("The parameter scope is malformed.").with_cause(
            "parameter_malformed", received="scope"
        )
    refused = disallowed_scopes(scopes, own)
    if refused:
        raise InvalidScope("The client may not request one of these scopes for itself.").with_cause(
            "scope_not_allowed", received=" ".join(refused), expected=own
        )
    return scopes or own


def scopes_for_a_user(requested: str, registered: Collection[str]) -> tuple[str, ...]:
    """Return the scopes that a client requests from a user, at least one (RFC 8628 section 3.1).

    Raises InvalidScope for no scope, a malformed parameter, and scopes that are not registered.
    """
    scopes = parse_scope(requested)
    if not scopes:
        raise InvalidScope("The parameter scope is missing, empty or malformed.").with_cause(
            "parameter_missing", expected="scope"
        )
    refused = disallowed_scopes(scopes, registered)
    if refused:
        raise InvalidScope("The client is not registered for one of these scopes.").with_cause(
            "scope_not_allowed", received=" ".join(refused), expected=tuple(registered)
        )
    return scopes
