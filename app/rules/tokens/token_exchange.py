"""Token exchange (RFC 8693): request parameters and the actor claim."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from app.rules.clients.client_types import IMPERSONATION
from app.rules.clients.resource_indicators import parse_resources
from app.rules.errors import OAuthError
from app.rules.scopes import parse_scope

ACCESS_TOKEN_TYPE = "urn:ietf:params:oauth:token-type:access_token"
JWT_TYPE = "urn:ietf:params:oauth:token-type:jwt"
# Longer chains of actors cannot be audited in practice.
MAX_ACTORS = 5


class ExchangeRequest(Struct, frozen=True):
    """A valid request. ``resources`` are the values of ``resource`` and ``audience`` together."""

    subject_token: str
    actor_token: str | None
    resources: tuple[str, ...]
    scopes: tuple[str, ...]
    wants_jwt: bool


def parse_exchange_request(form: Mapping[str, str]) -> ExchangeRequest:
    """Parse a token exchange request (RFC 8693 section 2.1). Raises OAuthError (invalid_request), InvalidTarget."""
    subject_token = form.get("subject_token")
    if subject_token is None:
        raise _missing("subject_token")
    _require_access_token(form, "subject_token_type")
    actor_token = form.get("actor_token")
    if actor_token is not None:
        _require_access_token(form, "actor_token_type")
    elif "actor_token_type" in form:
        raise _missing("actor_token")
    requested = form.get("requested_token_type", ACCESS_TOKEN_TYPE)
    if requested not in (ACCESS_TOKEN_TYPE, JWT_TYPE):
        raise OAuthError("This requested_token_type is not supported.").with_cause(
            "exchange_refused", received=requested, expected=(ACCESS_TOKEN_TYPE, JWT_TYPE)
        )
    scopes = parse_scope(form.get("scope", ""))
    if scopes is None:
        raise OAuthError("The parameter scope is malformed.", code="invalid_scope")
    resources = parse_resources(f"{form.get('resource', '')} {form.get('audience', '')}")
    return ExchangeRequest(subject_token, actor_token, resources, scopes, requested == JWT_TYPE)


def actor_claim(
    policy: str, *, of_subject: Mapping[str, Any] | None, actor: str, of_actor: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """Return the ``act`` claim of the new token (RFC 8693 section 4.1): the current actor and all earlier ones.

    ``of_subject`` and ``of_actor`` are the claims of the two tokens. Earlier actors are kept, also with
    impersonation. Raises OAuthError if the chain is longer than ``MAX_ACTORS``.
    """
    before = dict(of_subject) if of_subject is not None else None
    if policy == IMPERSONATION:
        return before
    act: dict[str, Any] = {"sub": actor}
    # Nested under the actor: first those who acted for the actor, then the subject's own chain.
    chain = [*_chain(of_actor), *_chain(before)]
    if 1 + len(chain) > MAX_ACTORS:
        raise OAuthError(f"The token already has {MAX_ACTORS} actors.").with_cause(
            "exchange_refused", expected=f"at most {MAX_ACTORS} actors"
        )
    for earlier in reversed(chain):
        act = _under(act, earlier)
    return act


def _under(act: dict[str, Any], earlier: str) -> dict[str, Any]:
    innermost = act.get("act")
    return {**act, "act": {"sub": earlier} if innermost is None else {"sub": earlier, "act": innermost}}


def _chain(act: Mapping[str, Any] | None) -> list[str]:
    found: list[str] = []
    while isinstance(act, Mapping):
        found.append(str(act.get("sub", "")))
        act = act.get("act")
    return found


def _require_access_token(form: Mapping[str, str], name: str) -> None:
    if name not in form:
        raise _missing(name)
    if form[name] != ACCESS_TOKEN_TYPE:
        raise OAuthError(f"The {name} must be {ACCESS_TOKEN_TYPE}.").with_cause(
            "exchange_refused", received=form[name], expected=ACCESS_TOKEN_TYPE
        )


def _missing(name: str) -> OAuthError:
    return OAuthError(f"The parameter {name} is missing.").with_cause("parameter_missing", expected=name)
