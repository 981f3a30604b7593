"""Adding and removing second factors and recovery codes of one's own account.

Authenticator apps are handled here, passkeys in ``passkey_registration`` with the shared steps from here.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import timedelta
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import update

from app.models.base import has_key
from app.models.session import Session
from app.operations.directory.lookups import get_organization_by_id
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.directory.users import hold_user
from app.operations.grants.revocation import revoke_grants_of_user
from app.operations.mail.notices import notify_user
from app.operations.sign_in import second_factors
from app.operations.sign_in.known_browsers import record_second_factor
from app.operations.sign_in.pending_sign_ins import PendingSignInRecord, SignInEnded, get_pending_sign_in
from app.operations.sign_in.reauthentication import require_active_session, require_fresh_sign_in
from app.operations.sign_in.second_factors import (
    AuthenticatorAppRecord,
    decide_mfa_of_user,
    find_methods_of_user,
)
from app.operations.sign_in.sessions import end_access_of_user, end_sessions_of_user, rotate_session_token
from app.operations.sign_in.sign_in import Browser, SecondStepRequired, SignedIn, complete_second_factor
from app.operations.store import audit, clock
from app.operations.store.transactions import count_changed, read, transaction
from app.rules import sealing
from app.rules.actor import Actor
from app.rules.errors import Conflict, InvalidInput, NotFound
from app.rules.languages.translation import lazy_gettext
from app.rules.sign_in.second_factors import (
    TOTP,
    MfaRequirement,
    allowed_methods,
    combine_amr,
    format_secret,
    matching_step,
    new_secret,
    otpauth_uri,
)

SETUP_LIFETIME = timedelta(minutes=30)
_PURPOSE = "enrolment"


class AuthenticatorAppSetup(Struct, frozen=True):
    """The content of the setup page: the ``otpauth:`` URI, the secret as text, and the sealed secret for the
    form.
    """

    otpauth_uri: str
    text: str
    sealed: str


class AddedFactor(Struct, frozen=True):
    """``token`` is the new session cookie, ``codes`` the recovery codes if this is the first factor."""

    token: str | None
    codes: tuple[str, ...]


class PendingEnrollment(Struct, frozen=True):
    """A pending sign-in that waits for a second factor to be set up.

    Only ``get_pending_enrollment`` makes one, before anything is stored: a sign-in that waits for an existing
    factor must not continue by adding another (MF-6).
    """

    organization: OrganizationSnapshot
    pending: PendingSignInRecord


class EnrollmentAtSignIn(Struct, frozen=True):
    """The result of the sign-in, and the recovery codes if this is the first factor."""

    outcome: SignedIn | SecondStepRequired
    codes: tuple[str, ...]


class SecondFactorRequired(Conflict):
    """The factor cannot be removed because the organization requires one and it is the last."""

    code = "second_factor_demanded"


class OwnFactors(Struct, frozen=True):
    """The second factors of one's own account. ``allowed`` methods may be set up."""

    allowed: tuple[str, ...]
    methods: tuple[str, ...]
    app: AuthenticatorAppRecord | None
    codes_left: int


class FactorRemoval(Struct, frozen=True):
    """Whether a second factor ``is_last``, and whether its removal ``is_refused``: the organization requires one."""

    is_last: bool
    is_refused: bool


@read
def require_fresh_own_account(actor: Actor) -> None:
    """Require that the actor may change the protection of their own account.

    Raises Forbidden, FreshSignInRequired.
    """
    get_own_account(actor)
    require_fresh_sign_in(actor)


@read
def begin_authenticator_app(actor: Actor, sealed: str = "") -> AuthenticatorAppSetup:
    """Create a secret for the actor's authenticator app. Nothing is stored until the app's first code.

    After an incorrect code, ``sealed`` is that of the page, whose secret stays until the page expires. The actor is
    signed in, or is the user of a pending sign-in.
    """
    organization, user_id = get_own_account(actor)
    try:
        secret = _open(organization.id, user_id, sealed)
    except InvalidInput:
        secret = new_secret()
        sealed = _seal(organization.id, user_id, secret)
    uri = otpauth_uri(secret, issuer=organization.title, account=actor.label)
    return AuthenticatorAppSetup(uri, format_secret(secret), sealed)


@transaction
def add_authenticator_app(actor: Actor, sealed: str, code: str, *, known_cookie: str = "") -> AddedFactor:
    """Add the actor's authenticator app after checking its first code.

    Other sessions and grants end (SS-6). ``known_cookie`` is the value of the known-browsers cookie. Raises
    FreshSignInRequired, InvalidInput naming ``code``, and Conflict if there is an app already or the
    organization does not allow them. Audit: ``second_factor.added``.
    """
    organization, user_id = get_own_account(actor)
    require_fresh_sign_in(actor)
    hold_user(organization.id, user_id)
    _store_app(organization, user_id, sealed, code)
    return complete_enrollment(
        actor, organization, user_id, TOTP, methods=("otp",), known_cookie=known_cookie
    )


@transaction
def add_authenticator_app_at_sign_in(
    actor: Actor, organization: OrganizationSnapshot, token: str, sealed: str, code: str, browser: Browser
) -> EnrollmentAtSignIn:
    """Add an authenticator app during a sign-in that requires it, and continue the sign-in.

    Raises SignInEnded, InvalidInput naming ``code``, Conflict. Audit: ``second_factor.added`` and as
    ``complete_second_factor``.
    """
    enrollment = get_pending_enrollment(organization, token, browser.id)
    hold_user(organization.id, enrollment.pending.user_id)
    _store_app(organization, enrollment.pending.user_id, sealed, code)
    return complete_enrollment_at_sign_in(actor, enrollment, TOTP, methods=("otp",), browser=browser)


@read
def get_pending_enrollment(
    organization: OrganizationSnapshot, token: str, browser_id: str
) -> PendingEnrollment:
    """Return the pending sign-in if it waits for a factor to be set up. Raises SignInEnded."""
    pending = get_pending_sign_in(organization, token, browser_id)
    if decide_mfa_of_user(organization, pending.user_id, pending.amr).requirement not in {
        MfaRequirement.OFFER,
        MfaRequirement.ENROL,
    }:
        raise SignInEnded
    return PendingEnrollment(organization, pending)


@transaction
def complete_enrollment(
    actor: Actor,
    organization: OrganizationSnapshot,
    user_id: UUID,
    method: str,
    *,
    methods: tuple[str, ...],
    known_cookie: str,
) -> AddedFactor:
    """Apply what every new second factor of a signed-in user entails, in the transaction that stored it.

    Other sessions and grants end. The current session gets the factor's ``amr`` and a new cookie (SS-2).
    Raises FreshSignInRequired if that session has ended meanwhile. Audit: ``second_factor.added``.
    """
    ended = end_sessions_of_user(organization.id, user_id, keep=actor.session_id)
    codes = _record_added(actor, organization, user_id, method, ended)
    _add_session_methods(actor, methods)
    record_second_factor(organization.id, user_id, known_cookie)
    require_active_session(actor)
    return AddedFactor(rotate_session_token(actor), codes)


@transaction
def complete_enrollment_at_sign_in(
    actor: Actor, enrollment: PendingEnrollment, method: str, *, methods: tuple[str, ...], browser: Browser
) -> EnrollmentAtSignIn:
    """Continue a pending sign-in with the factor that was just stored. Raises SignInEnded."""
    organization, pending = enrollment.organization, enrollment.pending
    outcome = complete_second_factor(actor, organization, pending, methods, browser)
    keep = outcome.session_id if isinstance(outcome, SignedIn) else None
    # Without a session yet, ending the others would also delete this pending sign-in, which needs another step.
    ended = end_sessions_of_user(organization.id, pending.user_id, keep=keep) if keep is not None else 0
    user_actor = replace(pending.to_actor(actor), session_id=keep)
    return EnrollmentAtSignIn(
        outcome, _record_added(user_actor, organization, pending.user_id, method, ended)
    )


def get_own_account(actor: Actor) -> tuple[OrganizationSnapshot, UUID]:
    """Return the actor's own organization and user id. Raises Forbidden for any other account."""
    user_id = actor.require_own_account()
    return get_organization_by_id(actor.organization_id), user_id


def require_method_allowed(organization: OrganizationSnapshot, method: str) -> None:
    """Require that the organization allows second factors of the method. Raises Conflict."""
    if method not in allowed_methods(organization.settings):
        raise Conflict("This organization doesn't allow this verification method.", code="method_not_allowed")


@read
def own_factors(actor: Actor) -> OwnFactors:
    """Return the actor's own second factors.

    Raises Forbidden unless the actor is a user in their own organization.
    """
    organization, user_id = get_own_account(actor)
    return OwnFactors(
        allowed_methods(organization.settings),
        find_methods_of_user(organization.id, user_id),
        second_factors.find_authenticator_app(organization.id, user_id),
        second_factors.count_recovery_codes(organization.id, user_id),
    )


@read
def describe_factor_removal(actor: Actor) -> FactorRemoval:
    """Return what removing one of the actor's own second factors means. Raises Forbidden as ``own_factors``."""
    organization, user_id = get_own_account(actor)
    count = second_factors.count_factors(organization.id, user_id)
    is_last = count.passkeys + count.has_app == 1
    return FactorRemoval(is_last, is_last and _requires_enrollment(organization, user_id))


@transaction
def remove_authenticator_app(actor: Actor) -> str | None:
    """Remove the actor's authenticator app and return the new session cookie.

    Raises FreshSignInRequired, which also requires the second factor, NotFound, SecondFactorRequired. Audit:
    ``second_factor.removed``.
    """
    organization, user_id = get_own_account(actor)
    require_fresh_sign_in(actor)
    hold_user(organization.id, user_id)
    if not second_factors.delete_authenticator_app(organization.id, user_id):
        raise NotFound("You don't have an authenticator app.")
    return complete_factor_removal(actor, organization, user_id, TOTP)


def _requires_enrollment(organization: OrganizationSnapshot, user_id: UUID) -> bool:
    """Return whether the organization would require a second factor of the user if they had none."""
    decision = decide_mfa_of_user(organization, user_id, (), enrolled=())
    return decision.requirement is MfaRequirement.ENROL


@transaction
def complete_factor_removal(
    actor: Actor, organization: OrganizationSnapshot, user_id: UUID, method: str
) -> str | None:
    """Apply what removing a factor entails, and return the new session cookie.

    Call it in the transaction that removed the factor. Recovery codes are deleted with the last one. Other
    sessions and grants end (SS-6). Raises SecondFactorRequired if the organization requires another factor
    first. Audit: ``second_factor.removed``.
    """
    if not find_methods_of_user(organization.id, user_id):
        second_factors.delete_recovery_codes(organization.id, user_id)
        if _requires_enrollment(organization, user_id):
            raise SecondFactorRequired(
                lazy_gettext(
                    "%(organization)s requires two-step verification. Set up another method first.",
                    organization=organization.title,
                )
            )
    ended = end_access_of_user(actor, user_id, reason="second_factor_removed", keep=actor.session_id)
    audit.record_user_event(actor, "second_factor.removed", user_id, before={"method": method}, after=ended)
    notify_user(actor, user_id, "second_factor_removed")
    require_active_session(actor)
    return rotate_session_token(actor)


@transaction
def regenerate_recovery_codes(actor: Actor) -> tuple[str, ...]:
    """Replace the actor's recovery codes and return the new ones, in clear only here (MF-4).

    The user is notified by email. Raises FreshSignInRequired, and Conflict without a second factor. Audit:
    ``recovery_codes.renewed``.
    """
    organization, user_id = get_own_account(actor)
    require_fresh_sign_in(actor)
    if not find_methods_of_user(organization.id, user_id):
        raise Conflict(
            "Set up two-step verification before you create recovery codes.", code="no_second_factor"
        )
    hold_user(organization.id, user_id)
    codes = second_factors.create_recovery_codes(organization, user_id)
    audit.record_user_event(actor, "recovery_codes.renewed", user_id, after={"recovery_codes": len(codes)})
    notify_user(actor, user_id, "recovery_codes_renewed")
    require_active_session(actor)
    return codes


def _store_app(organization: OrganizationSnapshot, user_id: UUID, sealed: str, code: str) -> None:
    require_method_allowed(organization, TOTP)
    secret = _open(organization.id, user_id, sealed)
    step = matching_step(secret, code, clock.now())
    if step is None:
        raise InvalidInput(
            "Incorrect code. Enter the current code from the app, and check that the clock of your device is right.",
            field="code",
            code="wrong_code",
        )
    second_factors.store_authenticator_app(organization.id, user_id, secret, step)


def _record_added(
    actor: Actor, organization: OrganizationSnapshot, user_id: UUID, method: str, ended_sessions: int
) -> tuple[str, ...]:
    codes = second_factors.create_first_recovery_codes(organization, user_id)
    grants = revoke_grants_of_user(actor, user_id, reason="second_factor_added")
    audit.record_user_event(
        actor,
        "second_factor.added",
        user_id,
        after={
            "method": method,
            "recovery_codes": len(codes),
            "ended_sessions": ended_sessions,
            "ended_grants": grants,
        },
    )
    notify_user(actor, user_id, "second_factor_added")
    return codes


def _add_session_methods(actor: Actor, methods: tuple[str, ...]) -> None:
    count_changed(
        update(Session)
        .where(has_key(Session, actor.home_organization_id, actor.session_id))
        .values(amr=" ".join(combine_amr(actor.amr or ("pwd",), methods)))
    )


def _seal(organization_id: str, user_id: UUID, secret: bytes) -> str:
    until = int((clock.now() + SETUP_LIFETIME).timestamp()).to_bytes(8, "big")
    return urlsafe_b64encode(
        second_factors.seal_secret(organization_id, user_id, _PURPOSE, until + secret)
    ).decode()


def _open(organization_id: str, user_id: UUID, sealed: str) -> bytes:
    try:
        opened = second_factors.open_secret(
            organization_id, user_id, _PURPOSE, urlsafe_b64decode(sealed[:400])
        )
    except (sealing.UnsealError, ValueError):
        opened = bytes(8)
    if int.from_bytes(opened[:8], "big") < clock.now().timestamp():
        raise InvalidInput("This page has expired. Scan the new code.", field="code", code="page_too_old")
    return opened[8:]
