"""Setting up a second factor: an authenticator app, and what every new factor brings with it."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass, replace
from datetime import timedelta
from uuid import UUID

from sqlalchemy import update

from app.extensions import db
from app.models.session import Session
from app.operations.directory.lookups import OrganizationSnapshot, get_organization_by_id
from app.operations.grants.revocation import revoke_grants_of_user
from app.operations.mail.notices import notify_user
from app.operations.sign_in import second_factors
from app.operations.sign_in import second_factors as totp
from app.operations.sign_in.known_browsers import record_second_factor
from app.operations.sign_in.pending_sign_ins import PendingSignInRecord, SignInEnded, get_pending_sign_in
from app.operations.sign_in.reauthentication import require_active_session, require_fresh_sign_in
from app.operations.sign_in.second_factors import (
    AuthenticatorAppRecord,
    decide_mfa_of_user,
    find_methods_of_user,
)
from app.operations.sign_in.sessions import end_sessions_of_user, rotate_session_token
from app.operations.sign_in.sign_in import Browser, SecondStepRequired, SignedIn, complete_second_factor
from app.operations.store import audit, clock
from app.operations.store.transactions import read, transaction
from app.rules import sealing
from app.rules.actor import Actor
from app.rules.errors import Conflict, InvalidInput, NotFound
from app.rules.identifiers import public_id
from app.rules.languages.sentences import sentence
from app.rules.sign_in import second_factors as one_time_codes
from app.rules.sign_in.second_factors import TOTP, MfaRequirement, allowed_methods, combine_amr

SETUP_LIFETIME = timedelta(minutes=30)
_PLACE = "enrolment"


@dataclass(frozen=True, slots=True)
class AuthenticatorAppSetup:
    """What the page of a new app holds: the secret to scan or type, and the same sealed, for the form to bring back."""

    address: str
    text: str
    sealed: str


@dataclass(frozen=True, slots=True)
class AddedFactor:
    """``token`` is the new value of this browser's cookie; ``codes`` are the recovery codes, if these are the first."""

    token: str | None
    codes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PendingEnrollment:
    """A sign-in that waits for a factor to be set up. Made by ``enrolling`` alone, before anything is stored: a sign-in
    that waits for a factor that is there already must not go on with another one (MF-6).
    """

    organization: OrganizationSnapshot
    pending: PendingSignInRecord


@dataclass(frozen=True, slots=True)
class EnrollmentAtSignIn:
    """How the sign-in went on, and the recovery codes, if these are the first."""

    outcome: SignedIn | SecondStepRequired
    codes: tuple[str, ...]


@read
def require_fresh_own_account(actor: Actor) -> None:
    """The actor may change what protects their own account now. Raises Forbidden, FreshSignInRequired."""
    get_own_account(actor)
    require_fresh_sign_in(actor)


@read
def begin_authenticator_app(actor: Actor) -> AuthenticatorAppSetup:
    """A new secret for the actor's authenticator app; nothing is kept of it until the app has shown a code.

    The actor is signed in, or the person of a sign-in that waits.
    """
    organization, user_id = get_own_account(actor)
    secret = one_time_codes.new_secret()
    return _shown(organization, actor.label, secret, _seal(organization.id, user_id, secret))


@read
def continue_authenticator_app(actor: Actor, sealed: str) -> AuthenticatorAppSetup:
    """The same secret again, after a wrong code; a new one when that page is too old."""
    organization, user_id = get_own_account(actor)
    try:
        return _shown(organization, actor.label, _open(organization.id, user_id, sealed), sealed)
    except InvalidInput:
        return begin_authenticator_app(actor)


@transaction
def add_authenticator_app(actor: Actor, sealed: str, typed: str, *, known: str = "") -> AddedFactor:
    """The actor has the authenticator app, whose code was typed; other sign-ins and what apps hold have ended (SS-6).

    ``known`` is the value of the browser's cookie of known browsers.
    Raises FreshSignInRequired, InvalidInput naming ``code``, Conflict when there is an app already or the organization
    does not take them. Audit: ``second_factor.added``.
    """
    organization, user_id = get_own_account(actor)
    require_fresh_sign_in(actor)
    _add(organization, user_id, sealed, typed)
    return complete_enrollment(actor, organization, user_id, TOTP, proved=("otp",), known=known)


@transaction
def add_authenticator_app_at_sign_in(
    actor: Actor, organization: OrganizationSnapshot, token: str, sealed: str, typed: str, browser: Browser
) -> EnrollmentAtSignIn:
    """As ``add_app``, for somebody whose sign-in waits for it; it goes on.

    Raises SignInEnded, InvalidInput naming ``code``, Conflict. Audit: ``second_factor.added`` and that of
    ``complete_second_proof``.
    """
    waiting = get_pending_enrollment(organization, token, browser.id)
    _add(organization, waiting.pending.user_id, sealed, typed)
    return complete_enrollment_at_sign_in(actor, waiting, TOTP, proved=("otp",), browser=browser)


@read
def get_pending_enrollment(
    organization: OrganizationSnapshot, token: str, browser_id: str
) -> PendingEnrollment:
    """The sign-in of the token, if it waits for a factor to be set up. Raises SignInEnded."""
    pending = get_pending_sign_in(organization, token, browser_id)
    if decide_mfa_of_user(organization, pending.user_id, pending.amr).demand not in {
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
    proved: tuple[str, ...],
    known: str,
) -> AddedFactor:
    """What every new factor of a signed-in person brings; in the unit that stored it.

    The present sign-in was made by it too, and has a new cookie (SS-2). Raises FreshSignInRequired when that sign-in
    has ended meanwhile: nothing is added. Audit: ``second_factor.added``.
    """
    ended = end_sessions_of_user(organization.id, user_id, keep=actor.session_id)
    codes = _note_added(actor, organization, user_id, method, ended)
    _raise_session(actor, proved)
    record_second_factor(organization.id, user_id, known)
    require_active_session(actor)
    return AddedFactor(rotate_session_token(actor), codes)


@transaction
def complete_enrollment_at_sign_in(
    actor: Actor, waiting: PendingEnrollment, method: str, *, proved: tuple[str, ...], browser: Browser
) -> EnrollmentAtSignIn:
    """As ``finish_adding``, for a sign-in that waits and goes on with it. Raises SignInEnded."""
    organization, pending = waiting.organization, waiting.pending
    outcome = complete_second_factor(actor, organization, pending, proved, browser)
    keep = outcome.session_id if isinstance(outcome, SignedIn) else None
    # A sign-in that waits for yet another step would end with the others.
    ended = end_sessions_of_user(organization.id, pending.user_id, keep=keep) if keep is not None else 0
    person = replace(pending.person(actor), session_id=keep)
    return EnrollmentAtSignIn(outcome, _note_added(person, organization, pending.user_id, method, ended))


def get_own_account(actor: Actor) -> tuple[OrganizationSnapshot, UUID]:
    """The actor's own organization and id: an account is changed from its own sign-in alone. Raises Forbidden."""
    user_id = actor.require_own_account()
    return get_organization_by_id(actor.organization_id), user_id


def require_method_allowed(organization: OrganizationSnapshot, method: str) -> None:
    """People of the organization may set up second factors of the method. Raises Conflict."""
    if method not in allowed_methods(organization.settings):
        raise Conflict("This organization does not take such a second factor.", code="method_not_allowed")


def _add(organization: OrganizationSnapshot, user_id: UUID, sealed: str, typed: str) -> None:
    require_method_allowed(organization, TOTP)
    secret = _open(organization.id, user_id, sealed)
    step = one_time_codes.matching_step(secret, typed, clock.now())
    if step is None:
        raise InvalidInput(
            "This is not the code that the app shows now. Is the clock of your device right?",
            field="code",
            code="wrong_code",
        )
    totp.store_authenticator_app(organization.id, user_id, secret, step)


def _note_added(
    actor: Actor, organization: OrganizationSnapshot, user_id: UUID, method: str, ended_sessions: int
) -> tuple[str, ...]:
    codes = second_factors.create_first_recovery_codes(organization, user_id)
    grants = revoke_grants_of_user(actor, user_id, reason="second_factor_added")
    audit.record(
        actor,
        "second_factor.added",
        target_type="user",
        target_id=public_id("usr", user_id),
        after={
            "method": method,
            "recovery_codes": len(codes),
            "ended_sessions": ended_sessions,
            "ended_grants": grants,
        },
    )
    notify_user(actor, user_id, "second_factor_added")
    return codes


def _raise_session(actor: Actor, proved: tuple[str, ...]) -> None:
    db.session.execute(
        update(Session)
        .where(Session.organization_id == actor.home_organization_id, Session.id == actor.session_id)
        .values(amr=" ".join(combine_amr(actor.amr or ("pwd",), proved)))
        .execution_options(synchronize_session=False)
    )


def _shown(
    organization: OrganizationSnapshot, account: str, secret: bytes, sealed: str
) -> AuthenticatorAppSetup:
    issuer = organization.settings["branding"]["display_name"] or organization.name
    address = one_time_codes.otpauth_uri(secret, issuer=issuer, account=account)
    return AuthenticatorAppSetup(address, one_time_codes.format_secret(secret), sealed)


def _seal(organization_id: str, user_id: UUID, secret: bytes) -> str:
    until = int((clock.now() + SETUP_LIFETIME).timestamp()).to_bytes(8, "big")
    return urlsafe_b64encode(totp.seal_secret(organization_id, user_id, _PLACE, until + secret)).decode()


def _open(organization_id: str, user_id: UUID, sealed: str) -> bytes:
    try:
        opened = totp.open_secret(organization_id, user_id, _PLACE, urlsafe_b64decode(sealed[:400]))
    except (sealing.UnsealError, ValueError):
        opened = bytes(8)
    if int.from_bytes(opened[:8], "big") < clock.now().timestamp():
        raise InvalidInput("This page is too old. Scan the new code.", field="code", code="page_too_old")
    return opened[8:]


class SecondFactorRequired(Conflict):
    """The organization asks this person for a second factor, and it would be the last."""

    code = "second_factor_demanded"


@dataclass(frozen=True, slots=True)
class OwnFactors:
    """What protects one's account beside the password; ``allowed`` may be set up."""

    allowed: tuple[str, ...]
    methods: tuple[str, ...]
    app: AuthenticatorAppRecord | None
    codes_left: int


@read
def own_factors(actor: Actor) -> OwnFactors:
    """The actor's own second factors. Raises Forbidden for anybody but a person in their own organization."""
    organization, user_id = get_own_account(actor)
    return OwnFactors(
        allowed_methods(organization.settings),
        find_methods_of_user(organization.id, user_id),
        totp.find_authenticator_app(organization.id, user_id),
        second_factors.count_recovery_codes(organization.id, user_id),
    )


@transaction
def remove_authenticator_app(actor: Actor) -> str | None:
    """The actor's authenticator app counts no more. Returns the new value of this browser's cookie.

    Raises FreshSignInRequired, which asks for the second factor too, NotFound, FactorDemanded. Audit:
    ``second_factor.removed``.
    """
    organization, user_id = get_own_account(actor)
    require_fresh_sign_in(actor)
    if not totp.delete_authenticator_app(organization.id, user_id):
        raise NotFound("You have no authenticator app.")
    return complete_factor_removal(actor, organization, user_id, TOTP)


@transaction
def complete_factor_removal(
    actor: Actor, organization: OrganizationSnapshot, user_id: UUID, method: str
) -> str | None:
    """What the end of every factor brings, in the unit that removed it; returns the new value of the cookie.

    With the last one the recovery codes go, which stand in for it. Raises FactorDemanded when the person could not
    sign in without another one. Other sign-ins and what apps hold have ended (SS-6). Audit:
    ``second_factor.removed``.
    """
    if not find_methods_of_user(organization.id, user_id):
        second_factors.delete_recovery_codes(organization.id, user_id)
        if decide_mfa_of_user(organization, user_id, ()).demand is MfaRequirement.ENROL:
            raise SecondFactorRequired(
                sentence(
                    "%(organization)s asks you for a second factor. Set up another one first.",
                    organization=organization.name,
                )
            )
    ended = end_sessions_of_user(organization.id, user_id, keep=actor.session_id)
    grants = revoke_grants_of_user(actor, user_id, reason="second_factor_removed")
    audit.record(
        actor,
        "second_factor.removed",
        target_type="user",
        target_id=public_id("usr", user_id),
        before={"method": method},
        after={"ended_sessions": ended, "ended_grants": grants},
    )
    notify_user(actor, user_id, "second_factor_removed")
    require_active_session(actor)
    return rotate_session_token(actor)


@transaction
def regenerate_recovery_codes(actor: Actor) -> tuple[str, ...]:
    """New recovery codes, clear in this answer alone; those before are void (MF-4), and the person is told by mail.

    Raises FreshSignInRequired, Conflict for somebody without a second factor. Audit: ``recovery_codes.renewed``.
    """
    organization, user_id = get_own_account(actor)
    require_fresh_sign_in(actor)
    if not find_methods_of_user(organization.id, user_id):
        raise Conflict(
            "Recovery codes stand in for a second factor. Set one up first.", code="no_second_factor"
        )
    codes = second_factors.create_recovery_codes(organization, user_id)
    audit.record(
        actor,
        "recovery_codes.renewed",
        target_type="user",
        target_id=public_id("usr", user_id),
        after={"recovery_codes": len(codes)},
    )
    notify_user(actor, user_id, "recovery_codes_renewed")
    require_active_session(actor)
    return codes
