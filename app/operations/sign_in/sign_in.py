"""Signing in with a password, and completing a sign-in after any first or second factor.

Every sign-in ends in ``complete_first_factor`` or ``complete_second_factor``, so that no path to a session
skips the organization's second-factor policy (MF-6).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal
from uuid import UUID

from sqlalchemy import select, update

from app.extensions import db
from app.models.user import ACTIVE, User
from app.operations.directory.lookups import OrganizationSnapshot, get_organization_by_id
from app.operations.sign_in import known_browsers, sign_in_limits
from app.operations.sign_in.passwords import verify_password
from app.operations.sign_in.pending_sign_ins import (
    PendingSignInRecord,
    SignInEnded,
    clear_code_failures,
    consume_pending_sign_in,
    create_pending_sign_in,
)
from app.operations.sign_in.second_factors import decide_mfa_of_user
from app.operations.sign_in.sessions import start_session
from app.operations.store import audit, clock, rate_limits
from app.operations.store.transactions import count_changed, read, transaction
from app.rules.actor import Actor
from app.rules.errors import Unavailable
from app.rules.identifiers import public_id
from app.rules.mail.email_addresses import canonical_email
from app.rules.sign_in.passwords import Lockout
from app.rules.sign_in.second_factors import MfaRequirement, combine_amr, used_second_factor

SignInRefusalReason = Literal["mismatch", "wait", "capped", "disabled", "reset", "suspended", "password_off"]


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A completed sign-in.

    ``token`` is the session cookie's value, available in clear only here. ``known_cookie`` is the new value of the
    known-browsers cookie.
    """

    token: str
    session_id: UUID
    user_id: UUID
    known_cookie: str = ""


@dataclass(frozen=True, slots=True)
class SecondStepRequired:
    """A sign-in that needs another step before ``expires_at``; ``token`` identifies it on the next page.

    ``purpose`` is VERIFY when the user has a second factor, ENROL when one is required but not set up, and
    OFFER when it becomes required at ``until`` and may be set up now or later.
    """

    token: str
    expires_at: datetime
    purpose: MfaRequirement
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Browser:
    """The browser that signs in.

    ``id`` is its anonymous id, which binds a pending sign-in to it. ``replaces`` is the organization's
    previous session cookie, invalid after a successful sign-in. ``known_cookie`` is the value of the known-browsers
    cookie.
    """

    id: str = ""
    user_agent: str = ""
    replaces: str | None = None
    known_cookie: str = ""


@dataclass(frozen=True, slots=True)
class SignInRefused:
    """The reason why a sign-in was rejected. ``attempts_left`` does not reveal whether the account exists."""

    reason: SignInRefusalReason
    attempts_left: int = 0
    retry_after: int = 0


@dataclass(frozen=True, slots=True)
class _Credentials:
    id: UUID
    password_hash: str | None
    is_active: bool
    has_blocked_password: bool


@transaction
def complete_first_factor(
    actor: Actor,
    organization: OrganizationSnapshot,
    user_id: UUID,
    *,
    amr: tuple[str, ...],
    browser: Browser,
) -> SignedIn | SecondStepRequired:
    """Start a session, or begin the second step if the organization requires one.

    Call it in the transaction that accepted the first factor. ``actor`` is the anonymous actor with IP
    address and request id. ``amr`` lists the authentication methods used (RFC 8176), including ``mfa`` when
    they already were two factors. Raises SignInEnded when the user can no longer sign in. Audit:
    ``session.started`` or ``sign_in.first_proof_given``.
    """
    decision = decide_mfa_of_user(organization, user_id, amr)
    if decision.requirement is MfaRequirement.NOTHING:
        return _start_session(actor, organization, user_id, amr, browser)
    token, expires_at = create_pending_sign_in(organization, user_id, amr, browser.id, browser.known_cookie)
    audit.record_user_event(
        _user_actor(actor, organization, user_id),
        "sign_in.first_proof_given",
        user_id,
        after={"methods": list(amr), "needs": decision.requirement.value},
    )
    return SecondStepRequired(token, expires_at, decision.requirement, decision.until)


@transaction
def complete_second_factor(
    actor: Actor,
    organization: OrganizationSnapshot,
    pending: PendingSignInRecord,
    methods: Iterable[str],
    browser: Browser,
) -> SignedIn | SecondStepRequired:
    """Complete a pending sign-in after its second factor was verified with the ``methods`` given.

    Call it in the transaction that accepted the factor. Another step may follow when the factor's method is
    no longer allowed and the policy requires a different one. Raises SignInEnded. Audit: as
    ``complete_first_factor``.
    """
    consume_pending_sign_in(pending)
    amr = combine_amr(pending.amr, methods)
    return complete_first_factor(actor, organization, pending.user_id, amr=amr, browser=browser)


@transaction
def postpone_enrollment(
    actor: Actor, organization: OrganizationSnapshot, pending: PendingSignInRecord, browser: Browser
) -> SignedIn | SecondStepRequired:
    """Sign the user in without the second factor that was offered.

    Return another step if the organization requires the factor by now. Raises SignInEnded. Audit:
    ``session.started``.
    """
    consume_pending_sign_in(pending)
    if decide_mfa_of_user(organization, pending.user_id, pending.amr).requirement is MfaRequirement.OFFER:
        return _start_session(actor, organization, pending.user_id, pending.amr, browser)
    return complete_first_factor(actor, organization, pending.user_id, amr=pending.amr, browser=browser)


def sign_in(
    organization_id: str,
    email: str,
    password: str,
    *,
    ip_address: str | None = None,
    user_agent: str = "",
    request_id: str | None = None,
    replaces: str | None = None,
    browser_id: str = "",
    known_cookie: str = "",
) -> SignedIn | SecondStepRequired | SignInRefused:
    """Sign a user in with a password.

    A wrong password is a result, not an exception. ``replaces``, ``browser_id`` and ``known_cookie`` are described
    at ``Browser``. Failures count towards the limits in ``sign_in_limits``. Raises Unavailable when too many
    passwords are being hashed, or hashing would have to wait for over two seconds. Audit: as
    ``complete_first_factor``, or ``sign_in.failed``, sampled once an account exceeds its limit.
    """
    organization = get_organization_by_id(organization_id)
    if not organization.is_active:
        return SignInRefused("suspended")
    if not organization.settings["authentication"]["password"]["enabled"]:
        return SignInRefused("password_off")
    canonical = canonical_email(email)
    attempt = sign_in_limits.claim_password_attempt(
        organization, email, ip_address=ip_address, known_cookie=known_cookie
    )
    result = attempt.result
    if result.retry_after:
        return SignInRefused("capped" if attempt.is_capped else "wait", retry_after=result.retry_after)
    account = _find_credentials(organization, canonical or "")
    try:
        is_right, renewed_hash = verify_password(
            account.password_hash if account else None,
            password,
            organization_id=organization.id,
            ip_address=ip_address,
        )
    except Unavailable:
        rate_limits.withdraw_attempts(organization.id, result.attempts)
        raise
    actor = Actor.anonymous(organization.id, ip_address, request_id)
    has_access = account is not None and account.is_active and not account.has_blocked_password
    if account is not None and is_right and has_access:
        accepted = _accept_password(
            actor,
            organization,
            account,
            renewed_hash,
            attempts=result.attempts,
            browser=Browser(browser_id, user_agent, replaces, known_cookie),
        )
        if accepted is not None:
            return accepted
    # Only someone who knows the password may learn that the account is disabled or has to reset it.
    reason: SignInRefusalReason = "mismatch"
    if account is not None and is_right and not has_access:
        reason = "reset" if account.is_active else "disabled"
    # Record every failure up to the limit, then only the 1st, 2nd, 4th, 8th … beyond it, so that an attack cannot
    # fill the audit log.
    if result.excess_failures <= 0 or result.excess_failures.bit_count() == 1:
        _record_failure(actor, canonical, reason, account.id if account is not None else None)
    wait = Lockout.of(organization.settings).delay.total_seconds() if result.attempts_left == 0 else 0
    return SignInRefused(reason, attempts_left=result.attempts_left, retry_after=int(wait))


def _start_session(
    actor: Actor, organization: OrganizationSnapshot, user_id: UUID, amr: tuple[str, ...], browser: Browser
) -> SignedIn:
    row = db.session.execute(
        select(User.email_canonical, User.last_sign_in_at).where(
            User.organization_id == organization.id, User.id == user_id
        )
    ).first()
    # Update the user's row first, so that a concurrent disable or delete either waits for this transaction or is
    # visible to it.
    is_active = count_changed(
        update(User)
        .where(User.organization_id == organization.id, User.id == user_id, User.status == ACTIVE)
        .values(last_sign_in_at=clock.now())
    )
    if row is None or not is_active:
        raise SignInEnded
    sign_in_limits.clear_failed_attempts(
        organization.id, row.email_canonical, ip_address=actor.ip_address, known_cookie=browser.known_cookie
    )
    used_factor = used_second_factor(amr)
    if used_factor:
        clear_code_failures(organization.id, user_id)
    token, session_id = start_session(
        organization,
        user_id,
        amr=" ".join(amr),
        ip_address=actor.ip_address,
        user_agent=browser.user_agent,
        replaces=browser.replaces,
    )
    user_actor = replace(_user_actor(actor, organization, user_id), session_id=session_id)
    known_cookie = known_browsers.remember_browser(
        user_actor,
        user_id,
        browser.known_cookie,
        user_agent=browser.user_agent,
        has_signed_in_before=row.last_sign_in_at is not None,
        used_factor=used_factor,
    )
    audit.record(
        user_actor,
        "session.started",
        target_type="session",
        target_id=public_id("ses", session_id),
        after={"methods": list(amr)},
    )
    return SignedIn(token, session_id, user_id, known_cookie)


def _user_actor(actor: Actor, organization: OrganizationSnapshot, user_id: UUID) -> Actor:
    email = db.session.scalar(
        select(User.email).where(User.organization_id == organization.id, User.id == user_id)
    )
    return actor.as_user(user_id, email or "")


@read
def _find_credentials(organization: OrganizationSnapshot, canonical: str) -> _Credentials | None:
    row = db.session.execute(
        select(User.id, User.password_hash, User.status, User.password_changed_at, User.created_at).where(
            User.organization_id == organization.id, User.email_canonical == canonical
        )
    ).first()
    if row is None:
        return None
    is_blocked = organization.blocks_password(row.password_changed_at, row.created_at)
    return _Credentials(row.id, row.password_hash, row.status == ACTIVE, is_blocked)


@transaction
def _accept_password(
    actor: Actor,
    organization: OrganizationSnapshot,
    account: _Credentials,
    renewed_hash: str | None,
    *,
    attempts: tuple[UUID, ...],
    browser: Browser,
) -> SignedIn | SecondStepRequired | None:
    """Complete the sign-in, or return None if the password or the status changed after the hash was read."""
    unchanged = count_changed(
        update(User)
        .where(
            User.organization_id == organization.id,
            User.id == account.id,
            User.status == ACTIVE,
            User.password_hash == account.password_hash,
        )
        .values(
            {"password_hash": renewed_hash, "password_scheme": None}
            if renewed_hash
            else {"password_hash": account.password_hash}
        )
    )
    if not unchanged:
        return None
    rate_limits.withdraw_attempts(organization.id, attempts)
    return complete_first_factor(actor, organization, account.id, amr=("pwd",), browser=browser)


@transaction
def _record_failure(
    actor: Actor, canonical: str | None, reason: SignInRefusalReason, user_id: UUID | None
) -> None:
    # Record only what looks like an email address, because users sometimes type a password into the wrong field.
    after = {"email": canonical, "reason": reason}
    # With the user as target, the account's owner sees the attempt in the activity list.
    target = None if user_id is None else public_id("usr", user_id)
    audit.record(actor, "sign_in.failed", target_type="user", target_id=target, after=after)
