"""What an authorization request still needs from the person in front of the browser."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from app.rules.authorization.authorization_request import AuthorizationParameters
from app.rules.authorization.claims_parameter import are_contexts_essential
from app.rules.authorization.consents import FIRST_PARTY, requires_user_consent
from app.rules.clients.client_types import is_pre_approved
from app.rules.clients.redirect_uris import is_loopback, is_private_scheme
from app.rules.oauth_errors import AuthorizationError
from app.rules.scopes import is_subset
from app.rules.sign_in.second_factors import used_second_factor

PASSWORD = "urn:oasis:names:tc:SAML:2.0:ac:classes:PasswordProtectedTransport"
"""A password, sent by TLS (SAML 2.0 Authentication Context section 3.4.14)."""
MULTI_FACTOR = "https://refeds.org/profile/mfa"
"""Two factors of different kinds, of which neither gives access to the other (REFEDS MFA Profile 1.2)."""

SUPPORTED = (PASSWORD, MULTI_FACTOR)
"""``acr_values_supported``, the weakest first."""


def contexts_reached(amr: Collection[str]) -> tuple[str, ...]:
    """The classes that a sign-in by these methods (RFC 8176) reaches, the strongest first."""
    found = [MULTI_FACTOR] if used_second_factor(amr) else []
    return (*found, PASSWORD) if "pwd" in amr else tuple(found)


def select_context(amr: Collection[str], wanted: Collection[str] = ()) -> str | None:
    """What ``acr`` says of such a sign-in: the first class that is ``wanted`` and reached, else the strongest."""
    reached = contexts_reached(amr)
    return next((name for name in (*wanted, *reached) if name in reached), None)


class Step(Enum):
    """What comes next."""

    CREATE_ACCOUNT = "create an account"
    SIGN_IN = "sign in"
    SELECT_ACCOUNT = "select an account"
    ASK_ADMINISTRATOR = "ask an administrator"
    CONSENT = "consent"
    ISSUE = "issue a code"


@dataclass(frozen=True, slots=True)
class SignIn:
    """The facts of a sign-in that the decision rests on.

    ``began_at`` is when the session began, and ``authenticated_at`` what ``auth_time`` says of it. ``selected``: the
    person chose this account for this very request. ``contexts`` are the context classes that it reached, and
    ``within_reach`` those that signing in anew would reach, since the person has a second factor.
    """

    began_at: datetime
    authenticated_at: datetime
    subject: str
    selected: bool = False
    contexts: tuple[str, ...] = ()
    within_reach: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InteractionContext:
    """What else the next step depends on.

    ``began_at`` is when the request arrived. ``subject`` is the one user whom the request is about, None when it may
    be anybody; ``is_hint_unknown`` says that it named somebody whom we do not know. ``can_register``: the
    organization lets people make accounts for themselves. ``may_allow``: the person who is signed in may allow this
    client something without asking an administrator.
    """

    began_at: datetime
    now: datetime
    needs_consent: bool
    subject: str | None = None
    is_hint_unknown: bool = False
    can_register: bool = False
    may_allow: bool = True


def next_step(
    parameters: AuthorizationParameters, sign_in: SignIn | None, circumstances: InteractionContext
) -> Step:
    """The next step.

    Raises AuthorizationError when ``prompt=none`` forbids to take it (OIDC Core 3.1.2.6), when somebody else signed
    in than the request is about, and when the sign-in reaches none of the context classes that it insists on.
    """
    silent = "none" in parameters.prompts
    step = _step(parameters, sign_in, circumstances)
    if silent and step in _SILENT_ERRORS:
        raise AuthorizationError(*_SILENT_ERRORS[step])
    if silent and circumstances.is_hint_unknown:
        raise AuthorizationError("login_required", "The id_token_hint names nobody who is known here.")
    return step


def _step(
    parameters: AuthorizationParameters, sign_in: SignIn | None, circumstances: InteractionContext
) -> Step:
    # Whatever was made for this very request satisfies its demands, however slow the consent after it: no loop.
    is_fresh = sign_in is not None and sign_in.began_at >= circumstances.began_at
    if "create" in parameters.prompts and circumstances.can_register and not is_fresh:
        return Step.CREATE_ACCOUNT
    if sign_in is None or not (is_fresh or _is_recent_enough(parameters, sign_in, circumstances.now)):
        return Step.SIGN_IN
    if "select_account" in parameters.prompts and not (is_fresh or sign_in.selected):
        return Step.SELECT_ACCOUNT
    if circumstances.subject not in {None, sign_in.subject}:
        if is_fresh:
            raise AuthorizationError("login_required", "Somebody else signed in than the request is about.")
        return Step.SIGN_IN
    if not is_fresh and _should_step_up(parameters, sign_in):
        return Step.SIGN_IN
    _require_context(parameters, sign_in)
    if not circumstances.may_allow:
        return Step.ASK_ADMINISTRATOR
    return Step.CONSENT if circumstances.needs_consent else Step.ISSUE


_SILENT_ERRORS = {
    Step.SIGN_IN: ("login_required", "The user is not signed in, or not as the request demands."),
    Step.CONSENT: ("consent_required", "The user must be asked for consent."),
    Step.ASK_ADMINISTRATOR: ("consent_required", "An administrator must allow this client first."),
}


def _is_recent_enough(parameters: AuthorizationParameters, sign_in: SignIn, now: datetime) -> bool:
    # An account that is to be created is not the one that is signed in.
    if "login" in parameters.prompts or "create" in parameters.prompts:
        return False
    if parameters.max_age is None:
        return True
    return (now - sign_in.authenticated_at).total_seconds() <= parameters.max_age


def _should_step_up(parameters: AuthorizationParameters, sign_in: SignIn) -> bool:
    """Whether a new sign-in would reach a class that is wanted, and this one reaches none of them.

    Without a page there is no new sign-in: a wish that is no demand is then left open (OIDC Core 5.5.1.1).
    """
    if not parameters.acr_values or set(sign_in.contexts) & set(parameters.acr_values):
        return False
    can = bool(set(sign_in.within_reach) & set(parameters.acr_values))
    return can and ("none" not in parameters.prompts or are_contexts_essential(parameters.claims))


def _require_context(parameters: AuthorizationParameters, sign_in: SignIn) -> None:
    if are_contexts_essential(parameters.claims) and not (
        parameters.acr_values == () or set(sign_in.contexts) & set(parameters.acr_values)
    ):
        # OpenID Connect Core Error Code unmet_authentication_requirements, section 2.
        raise AuthorizationError(
            "unmet_authentication_requirements", "No sign-in here reaches a context class that is demanded."
        )


def needs_consent(
    parameters: AuthorizationParameters,
    *,
    trust: str,
    is_public: bool,
    allowed: Collection[str],
    settings: Mapping[str, Any],
    declined: Collection[str] = (),
    is_unreviewed: bool = False,
    approval: str | None = None,
    approved_scopes: Collection[str] = (),
) -> bool:
    """Whether the consent page must be shown; ``allowed`` are the scopes of a consent that still stands.

    ``declined`` are those that the person left out of it: they are no reason to ask, unless there is nothing else.
    ``approval`` and ``approved_scopes`` are what administrators decided about the client for everybody.

    A client that cannot prove who it is is asked about each time, however often it was allowed before and whoever
    vouches for it: any program could take its place (CO-2, RFC 8252 section 8.6). So is one that registered itself
    and that nobody here reviewed (DC-1). An organization's own confidential clients are asked about only if it says
    so.
    """
    if is_public or is_unreviewed or "consent" in parameters.prompts or is_local(parameters.redirect_uri):
        return True
    if parameters.bare_resources and trust != FIRST_PARTY:
        # A consent remembers scopes: it says nothing of a resource that none of them belongs to.
        return True
    if not depends_on_user_consent(
        parameters, trust=trust, settings=settings, approval=approval, approved_scopes=approved_scopes
    ):
        return False
    if not is_subset(parameters.consent_scopes, {*allowed, *declined}):
        return True
    return bool(parameters.scopes) and not set(parameters.scopes) - set(declined)


def depends_on_user_consent(
    parameters: AuthorizationParameters,
    *,
    trust: str,
    settings: Mapping[str, Any],
    approval: str | None,
    approved_scopes: Collection[str],
) -> bool:
    """Whether it is the person's own consent that gives the client its scopes, and nobody's decision for everybody."""
    if is_pre_approved(
        parameters.consent_scopes, approval=approval, approved_scopes=approved_scopes, trust=trust
    ):
        return False
    return requires_user_consent(trust, settings)


def is_local(redirect_uri: str) -> bool:
    """Whether the redirect ends at an app on the user's own device, which no name vouches for."""
    return is_loopback(redirect_uri) or is_private_scheme(redirect_uri)
