"""What an authorization request still needs from the person in front of the browser."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from app.rules.protocol.authorization_request import AuthorizationParameters
from app.rules.protocol.oauth_errors import AuthorizationRefusal
from app.rules.protocol.scopes import is_within
from app.rules.registration.redirect_uris import is_loopback, is_private_scheme

FIRST_PARTY = "first_party"


class Step(Enum):
    """What comes next."""

    SIGN_IN = "sign in"
    CONSENT = "consent"
    ISSUE = "issue a code"


@dataclass(frozen=True, slots=True)
class SignIn:
    """The facts of a sign-in that the decision rests on."""

    authenticated_at: datetime


def next_step(
    parameters: AuthorizationParameters,
    *,
    began_at: datetime,
    now: datetime,
    sign_in: SignIn | None,
    needs_consent: bool,
) -> Step:
    """The next step. Raises AuthorizationRefusal when ``prompt=none`` forbids to take it (OIDC Core 3.1.2.6)."""
    silent = "none" in parameters.prompts
    if sign_in is None or _is_stale(parameters, sign_in, began_at, now):
        if silent:
            raise AuthorizationRefusal("login_required", "The user is not signed in, or not recently enough.")
        return Step.SIGN_IN
    if needs_consent:
        if silent:
            raise AuthorizationRefusal("consent_required", "The user must be asked for consent.")
        return Step.CONSENT
    return Step.ISSUE


def needs_consent(
    parameters: AuthorizationParameters,
    *,
    trust: str,
    is_public: bool,
    allowed: Collection[str],
    settings: Mapping[str, Any],
) -> bool:
    """Whether the consent page must be shown; ``allowed`` are the scopes of a consent that still stands.

    A client that cannot prove who it is is asked about each time, however often it was allowed before and whoever
    vouches for it: any program could take its place (CO-2, RFC 8252 section 8.6). An organization's own
    confidential clients are asked about only if it says so.
    """
    if "consent" in parameters.prompts or is_public or is_local(parameters.redirect_uri):
        return True
    if trust == FIRST_PARTY:
        return bool(settings["oauth"]["consent"]["policy"] == "always") and not is_within(
            parameters.scopes, allowed
        )
    return not is_within(parameters.scopes, allowed)


def is_local(redirect_uri: str) -> bool:
    """Whether the redirect ends at an app on the user's own device, which no name vouches for."""
    return is_loopback(redirect_uri) or is_private_scheme(redirect_uri)


def _is_stale(
    parameters: AuthorizationParameters, sign_in: SignIn, began_at: datetime, now: datetime
) -> bool:
    # A sign-in made for this very request satisfies prompt and max_age, however slow the consent after it.
    if sign_in.authenticated_at >= began_at:
        return False
    if "login" in parameters.prompts or "select_account" in parameters.prompts:
        return True
    if parameters.max_age is not None:
        return (now - sign_in.authenticated_at).total_seconds() > parameters.max_age
    return False
