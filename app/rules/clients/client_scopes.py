"""What a client may ask for on its own behalf."""

from __future__ import annotations

from collections.abc import Collection

from app.rules.oauth_errors import InvalidScope
from app.rules.scopes import IDENTITY_SCOPES, disallowed_scopes, parse_scope


def scopes_for_itself(asked: str, registered: Collection[str]) -> tuple[str, ...]:
    """The scopes of a client_credentials token; all that the client may have when it asks for none.

    Identity scopes speak of a user, and there is none. Raises InvalidScope for more than was registered.
    """
    own = tuple(scope for scope in registered if scope not in IDENTITY_SCOPES)
    scopes = parse_scope(asked)
    if scopes is None:
        raise InvalidScope("The parameter scope is malformed.").with_cause(
            "parameter_malformed", received="scope"
        )
    refused = disallowed_scopes(scopes, own)
    if refused:
        raise InvalidScope("A scope was asked for that the client may not have for itself.").with_cause(
            "scope_not_allowed", received=" ".join(refused), expected=own
        )
    return scopes or own


def scopes_for_a_user(asked: str, registered: Collection[str]) -> tuple[str, ...]:
    """The scopes that a client asks a person for; at least one (RFC 8628 section 3.1).

    Raises InvalidScope for none, a malformed parameter, and more than was registered.
    """
    scopes = parse_scope(asked)
    if not scopes:
        raise InvalidScope("The parameter scope is missing, empty or malformed.").with_cause(
            "parameter_missing", expected="scope"
        )
    refused = disallowed_scopes(scopes, registered)
    if refused:
        raise InvalidScope("A scope was asked for that the client was not registered for.").with_cause(
            "scope_not_allowed", received=" ".join(refused), expected=tuple(registered)
        )
    return scopes
