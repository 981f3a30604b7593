"""The next step of an authorization request, when consent is needed, and the codes that users type."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from datetime import datetime
from enum import Enum
from typing import Any

from msgspec import Struct

from app.rules.authorization.authorization_request import AuthorizationParameters, are_contexts_essential
from app.rules.authorization.consents import requires_user_consent
from app.rules.clients.client_types import FIRST_PARTY, is_pre_approved
from app.rules.clients.redirect_uris import is_loopback, is_private_scheme
from app.rules.errors import AuthorizationError
from app.rules.scopes import is_subset
from app.rules.sign_in.second_factors import used_second_factor

PASSWORD = "urn:oasis:names:tc:SAML:2.0:ac:classes:PasswordProtectedTransport"
"""A password, sent by TLS (SAML 2.0 Authentication Context section 3.4.14)."""
MULTI_FACTOR = "https://refeds.org/profile/mfa"
"""Two factors of different kinds, of which neither gives access to the other (REFEDS MFA Profile 1.2)."""

SUPPORTED = (PASSWORD, MULTI_FACTOR)
"""``acr_values_supported``, the weakest first."""
ALPHABET = "BCDFGHJKLMNPQRSTVWXZ"
LENGTH = 8
# Characters that are accepted between and around the letters.
_SEPARATORS = dict.fromkeys(map(ord, " \t-\u2010\u2011\u2012\u2013\u2014_.·"))
_MAX_TYPED_LENGTH = 64


def contexts_reached(amr: Collection[str]) -> tuple[str, ...]:
    """Return the context classes that a sign-in with these methods (RFC 8176) reaches, strongest first."""
    found = [MULTI_FACTOR] if used_second_factor(amr) else []
    return (*found, PASSWORD) if "pwd" in amr else tuple(found)


def select_context(amr: Collection[str], requested: Collection[str] = ()) -> str | None:
    """Return the ``acr`` of a sign-in: the first class that is requested and reached, else the strongest."""
    reached = contexts_reached(amr)
    return next((name for name in (*requested, *reached) if name in reached), None)


class Step(Enum):
    """The next step of an authorization request."""

    CREATE_ACCOUNT = "create an account"
    SIGN_IN = "sign in"
    SELECT_ACCOUNT = "select an account"
    ASK_ADMINISTRATOR = "ask an administrator"
    CONSENT = "consent"
    ISSUE = "issue a code"


class SignIn(Struct, frozen=True):
    """A sign-in.

    ``created_at`` is when its session was created, ``authenticated_at`` its ``auth_time``, which is earlier if an
    identity provider did not ask the user again. ``selected``: the user selected this account for this request.
    ``contexts`` are the context classes that it reached, ``reachable_contexts`` those that a new sign-in would reach
    with the user's second factor.
    """

    created_at: datetime
    authenticated_at: datetime
    subject: str
    selected: bool = False
    contexts: tuple[str, ...] = ()
    reachable_contexts: tuple[str, ...] = ()


class InteractionContext(Struct, frozen=True):
    """Further inputs of the decision.

    ``began_at`` is when the request arrived. ``subjects`` are the requested users, or None for any;
    ``is_hint_unknown`` means that the hint names an unknown user. ``can_register``: registration is open.
    ``may_allow``: the signed-in user may allow this client without administrator approval.
    """

    began_at: datetime
    now: datetime
    needs_consent: bool
    subjects: frozenset[str] | None = None
    is_hint_unknown: bool = False
    can_register: bool = False
    may_allow: bool = True


def demands_new_sign_in(sent: Mapping[str, str], client: Mapping[str, Any]) -> bool:
    """Return whether a request asks for a new sign-in or may: by ``prompt``, ``max_age`` or the client's default.

    ``sent`` are its parameters, ``client`` is the client's document.
    """
    has_max_age = "max_age" in sent or client.get("default_max_age") is not None
    return has_max_age or not {"login", "create"}.isdisjoint(sent.get("prompt", "").split())


def next_step(
    parameters: AuthorizationParameters, sign_in: SignIn | None, circumstances: InteractionContext
) -> Step:
    """Return the next step.

    Raises AuthorizationError if ``prompt=none`` forbids it (OIDC Core 3.1.2.6), if another user than the requested one
    signed in, and if the sign-in reaches none of the essential context classes.
    """
    silent = "none" in parameters.prompts
    step = _step(parameters, sign_in, circumstances)
    if silent and step in _SILENT_ERRORS:
        raise AuthorizationError(*_SILENT_ERRORS[step])
    if silent and circumstances.is_hint_unknown:
        raise AuthorizationError("login_required", "The id_token_hint names an unknown user.")
    return step


def _step(
    parameters: AuthorizationParameters, sign_in: SignIn | None, circumstances: InteractionContext
) -> Step:
    # A sign-in made for this request always satisfies it, however long the consent takes, so that there is no loop.
    is_new = sign_in is not None and sign_in.created_at >= circumstances.began_at
    is_fresh = is_new and sign_in is not None and sign_in.authenticated_at >= circumstances.began_at
    if "create" in parameters.prompts and circumstances.can_register and not is_fresh:
        return Step.CREATE_ACCOUNT
    if sign_in is None or not (is_fresh or _is_recent_enough(parameters, sign_in, circumstances.now)):
        return Step.SIGN_IN
    if "select_account" in parameters.prompts and not (is_fresh or sign_in.selected):
        return Step.SELECT_ACCOUNT
    if circumstances.subjects is not None and sign_in.subject not in circumstances.subjects:
        if is_new:
            raise AuthorizationError("login_required", "Another user than the requested one signed in.")
        return Step.SIGN_IN
    if not is_fresh and _should_step_up(parameters, sign_in):
        return Step.SIGN_IN
    _require_context(parameters, sign_in)
    if not circumstances.may_allow:
        return Step.ASK_ADMINISTRATOR
    return Step.CONSENT if circumstances.needs_consent else Step.ISSUE


_SILENT_ERRORS = {
    Step.SIGN_IN: ("login_required", "The user is not signed in, or the sign-in does not meet the request."),
    Step.CONSENT: ("consent_required", "The user must consent."),
    Step.ASK_ADMINISTRATOR: ("consent_required", "An administrator must approve this client first."),
}


def _is_recent_enough(parameters: AuthorizationParameters, sign_in: SignIn, now: datetime) -> bool:
    # With prompt=create, the signed-in account is not the one to create.
    if "login" in parameters.prompts or "create" in parameters.prompts:
        return False
    if parameters.max_age is None:
        return True
    return (now - sign_in.authenticated_at).total_seconds() <= parameters.max_age


def _should_step_up(parameters: AuthorizationParameters, sign_in: SignIn) -> bool:
    """Return whether a new sign-in would reach a requested class while this one reaches none.

    With ``prompt=none`` a new sign-in is impossible, so voluntary classes are ignored (OIDC Core 5.5.1.1).
    """
    if not parameters.acr_values or set(sign_in.contexts) & set(parameters.acr_values):
        return False
    can = bool(set(sign_in.reachable_contexts) & set(parameters.acr_values))
    return can and ("none" not in parameters.prompts or are_contexts_essential(parameters.claims))


def _require_context(parameters: AuthorizationParameters, sign_in: SignIn) -> None:
    if are_contexts_essential(parameters.claims) and not set(sign_in.contexts) & set(parameters.acr_values):
        # OpenID Connect Core Error Code unmet_authentication_requirements, section 2.
        raise AuthorizationError(
            "unmet_authentication_requirements", "The sign-in reaches none of the essential context classes."
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
    """Return whether the consent page must be shown; ``allowed`` are the scopes of a valid consent.

    ``declined`` scopes do not require the page, unless all requested scopes were declined. ``approval`` and
    ``approved_scopes`` are the administrators' decision about the client for all users.

    A public client needs consent each time, because any program could impersonate it (CO-2, RFC 8252 section 8.6), and
    so does a client that registered itself and was not reviewed (DC-1), which ``is_unreviewed`` says unless the
    organization remembers such consents. First-party confidential clients need consent only if the organization's
    settings require it.
    """
    if is_public or is_unreviewed or "consent" in parameters.prompts or is_local(parameters.redirect_uri):
        return True
    if parameters.bare_resources and trust != FIRST_PARTY:
        # A consent stores scopes, so it does not cover a resource without any of them.
        return True
    if not depends_on_user_consent(
        parameters.consent_scopes,
        trust=trust,
        settings=settings,
        approval=approval,
        approved_scopes=approved_scopes,
    ):
        return False
    if not is_subset(parameters.consent_scopes, {*allowed, *declined}):
        return True
    return bool(parameters.scopes) and not set(parameters.scopes) - set(declined)


def depends_on_user_consent(
    scopes: Collection[str],
    *,
    trust: str,
    settings: Mapping[str, Any],
    approval: str | None,
    approved_scopes: Collection[str],
) -> bool:
    """Return whether the client needs the user's own consent, rather than an administrator's approval for all."""
    if is_pre_approved(scopes, approval=approval, approved_scopes=approved_scopes, trust=trust):
        return False
    return requires_user_consent(trust, settings)


def is_local(redirect_uri: str) -> bool:
    """Return whether the redirect goes to an app on the user's device, which nothing authenticates."""
    return is_loopback(redirect_uri) or is_private_scheme(redirect_uri)


def generate_user_code() -> str:
    """Return a random code of eight letters out of twenty, one of 2.56e10 (DV-1)."""
    return "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))


def format_user_code(user_code: str) -> str:
    """Return the code in two groups of four, for display."""
    return f"{user_code[:4]}-{user_code[4:]}"


def parse_user_code(typed: str) -> str | None:
    """Return the typed code without case, dashes and spaces, or None if it is not a code."""
    if len(typed) > _MAX_TYPED_LENGTH:
        return None
    letters = typed.translate(_SEPARATORS).upper()
    return letters if len(letters) == LENGTH and all(letter in ALPHABET for letter in letters) else None
