"""The one end of every sign-in: whatever the first proof was, nothing reaches a session but through here (MF-6)."""

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
from app.rules.sign_in.lockout import Lockout
from app.rules.sign_in.second_factors import MfaRequirement, combine_amr, used_second_factor


@dataclass(frozen=True, slots=True)
class SignedIn:
    """``token`` is the cookie's value: the only place where it stands in clear.

    ``known`` is the value of the cookie of known browsers from now on.
    """

    token: str
    session_id: UUID
    user_id: UUID
    known: str = ""


@dataclass(frozen=True, slots=True)
class SecondStepRequired:
    """The sign-in waits: ``purpose`` says for what, ``token`` is what the next page carries until ``expires_at``.

    VERIFY: the person has a second factor and gives it. ENROL: one is demanded and has to be set up. OFFER: it will be
    demanded from ``until`` on, and may be set up now or later.
    """

    token: str
    expires_at: datetime
    purpose: MfaRequirement
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Browser:
    """Where the person signs in. ``replaces`` is this browser's previous cookie value for the organization, dead
    after a success; ``id`` is its anonymous id, which a sign-in that waits is bound to; ``known`` is the value of its
    cookie of known browsers.
    """

    id: str = ""
    user_agent: str = ""
    replaces: str | None = None
    known: str = ""


@transaction
def complete_first_factor(
    actor: Actor,
    organization: OrganizationSnapshot,
    user_id: UUID,
    *,
    amr: tuple[str, ...],
    browser: Browser,
) -> SignedIn | SecondStepRequired:
    """The user is signed in, or is asked for what is missing; part of the unit that accepted the proof.

    ``actor`` is the anonymous one with address and request id; ``amr`` is what was proved (RFC 8176), with ``mfa``
    where that was two factors at once. Raises SignInEnded when the user may sign in no more. Audit:
    ``session.started`` or ``sign_in.first_proof_given``.
    """
    verdict = decide_mfa_of_user(organization, user_id, amr)
    if verdict.demand is MfaRequirement.NOTHING:
        return _start(actor, organization, user_id, amr, browser)
    token, expires_at = create_pending_sign_in(organization, user_id, amr, browser.id, browser.known)
    audit.record(
        _person(actor, organization, user_id),
        "sign_in.first_proof_given",
        target_type="user",
        target_id=public_id("usr", user_id),
        after={"methods": list(amr), "needs": verdict.demand.value},
    )
    return SecondStepRequired(token, expires_at, verdict.demand, verdict.until)


@transaction
def complete_second_factor(
    actor: Actor,
    organization: OrganizationSnapshot,
    pending: PendingSignInRecord,
    proved: Iterable[str],
    browser: Browser,
) -> SignedIn | SecondStepRequired:
    """The sign-in that waited goes on with the second factor that was ``proved``, in the caller's unit.

    What follows may be another step: a factor whose method counts no more opens the account, and another is demanded.
    Raises SignInEnded. Audit: as the first proof.
    """
    consume_pending_sign_in(pending)
    amr = combine_amr(pending.amr, proved)
    return complete_first_factor(actor, organization, pending.user_id, amr=amr, browser=browser)


@transaction
def postpone_enrollment(
    actor: Actor, organization: OrganizationSnapshot, pending: PendingSignInRecord, browser: Browser
) -> SignedIn | SecondStepRequired:
    """The user is signed in without the second factor that is offered; who may not put it off is asked again.

    Raises SignInEnded. Audit: ``session.started``.
    """
    consume_pending_sign_in(pending)
    if decide_mfa_of_user(organization, pending.user_id, pending.amr).demand is MfaRequirement.OFFER:
        return _start(actor, organization, pending.user_id, pending.amr, browser)
    return complete_first_factor(actor, organization, pending.user_id, amr=pending.amr, browser=browser)


def _start(
    actor: Actor, organization: OrganizationSnapshot, user_id: UUID, amr: tuple[str, ...], browser: Browser
) -> SignedIn:
    before = db.session.execute(
        select(User.email_canonical, User.last_sign_in_at).where(
            User.organization_id == organization.id, User.id == user_id
        )
    ).first()
    # The row first: whoever disables or deletes the user at this moment waits for it, or has done so already.
    standing = count_changed(
        update(User)
        .where(User.organization_id == organization.id, User.id == user_id, User.status == ACTIVE)
        .values(last_sign_in_at=clock.now())
    )
    if before is None or not standing:
        raise SignInEnded
    sign_in_limits.clear_failed_attempts(
        organization.id, before.email_canonical, address=actor.ip_address, known=browser.known
    )
    gave_factor = used_second_factor(amr)
    if gave_factor:
        clear_code_failures(organization.id, user_id)
    token, session_id = start_session(
        organization,
        user_id,
        amr=" ".join(amr),
        address=actor.ip_address,
        user_agent=browser.user_agent,
        replaces=browser.replaces,
    )
    who = replace(_person(actor, organization, user_id), session_id=session_id)
    known = known_browsers.remember_browser(
        who,
        user_id,
        browser.known,
        user_agent=browser.user_agent,
        has_signed_in_before=before.last_sign_in_at is not None,
        gave_factor=gave_factor,
    )
    audit.record(
        who,
        "session.started",
        target_type="session",
        target_id=public_id("ses", session_id),
        after={"methods": list(amr)},
    )
    return SignedIn(token, session_id, user_id, known)


def _person(actor: Actor, organization: OrganizationSnapshot, user_id: UUID) -> Actor:
    email = db.session.scalar(
        select(User.email).where(User.organization_id == organization.id, User.id == user_id)
    )
    return Actor(
        "user",
        organization.id,
        organization.id,
        user_id=user_id,
        label=email or "",
        ip_address=actor.ip_address,
        request_id=actor.request_id,
    )


__all__ = ["Reason", "Refused", "SecondStep", "SignedIn", "sign_in"]

SignInRefusalReason = Literal["mismatch", "wait", "capped", "disabled", "suspended", "password_off"]


@dataclass(frozen=True, slots=True)
class SignInRefused:
    """Why nobody was signed in. ``attempts_left`` says nothing about whether the account exists."""

    reason: SignInRefusalReason
    attempts_left: int = 0
    retry_after: int = 0


@dataclass(frozen=True, slots=True)
class _Account:
    id: UUID
    password_hash: str | None
    is_active: bool


def sign_in(
    organization_id: str,
    email: str,
    password: str,
    *,
    address: str | None = None,
    user_agent: str = "",
    request_id: str | None = None,
    replaces: str | None = None,
    browser_id: str = "",
    known: str = "",
) -> SignedIn | SecondStepRequired | SignInRefused:
    """A new session of the user whose password it is, the step that it waits for, or the reason why not.

    Nothing is raised for a wrong password. ``replaces``, ``browser_id`` and ``known`` are as in ``Browser``. Failures
    are counted as ``sign_in_safety.limits`` says; a right password is none. Raises Unavailable when too many hash, or
    the hash has to wait for over two seconds. Audit: that of ``complete_first_proof``, or ``sign_in.failed``, of which
    beyond a bound only a sample is kept.
    """
    organization = get_organization_by_id(organization_id)
    if not organization.is_active:
        return SignInRefused("suspended")
    if not organization.settings["authentication"]["password"]["enabled"]:
        return SignInRefused("password_off")
    canonical = canonical_email(email)
    guess = sign_in_limits.claim_password_attempt(organization, email, address=address, known=known)
    claim = guess.claim
    if claim.retry_after:
        return SignInRefused("capped" if guess.is_capped else "wait", retry_after=claim.retry_after)
    account = _find_account(organization.id, canonical or "")
    try:
        is_right, renewed_hash = verify_password(
            account.password_hash if account else None,
            password,
            organization_id=organization.id,
            address=address,
        )
    except Unavailable:
        rate_limits.withdraw_attempts(organization.id, claim.attempts)
        raise
    actor = Actor.anonymous(organization.id, address, request_id)
    if account is not None and is_right and account.is_active:
        accepted = _accept(
            actor,
            organization,
            account,
            renewed_hash,
            spent=claim.attempts,
            browser=Browser(browser_id, user_agent, replaces, known),
        )
        if accepted is not None:
            return accepted
    # Whoever knows the password may know that the account is disabled; nobody else may.
    reason: SignInRefusalReason = (
        "disabled" if account is not None and is_right and not account.is_active else "mismatch"
    )
    # All up to the bound, then the 1st, 2nd, 4th, 8th … beyond it: an attack must not fill the audit log.
    if claim.excess_failures <= 0 or claim.excess_failures.bit_count() == 1:
        _record_failure(actor, canonical, reason, account.id if account is not None else None)
    wait = Lockout.of(organization.settings).delay.total_seconds() if claim.attempts_left == 0 else 0
    return SignInRefused(reason, attempts_left=claim.attempts_left, retry_after=int(wait))


@read
def _find_account(organization_id: str, canonical: str) -> _Account | None:
    row = db.session.execute(
        select(User.id, User.password_hash, User.status).where(
            User.organization_id == organization_id, User.email_canonical == canonical
        )
    ).first()
    return None if row is None else _Account(row.id, row.password_hash, row.status == ACTIVE)


@transaction
def _accept(
    actor: Actor,
    organization: OrganizationSnapshot,
    account: _Account,
    renewed_hash: str | None,
    *,
    spent: tuple[UUID, ...],
    browser: Browser,
) -> SignedIn | SecondStepRequired | None:
    """The password counts, unless it was changed or the user disabled since the hash was read."""
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
    rate_limits.withdraw_attempts(organization.id, spent)
    return complete_first_factor(actor, organization, account.id, amr=("pwd",), browser=browser)


@transaction
def _record_failure(
    actor: Actor, canonical: str | None, reason: SignInRefusalReason, user_id: UUID | None
) -> None:
    # Only what has the form of an address is kept: people type passwords into the wrong field.
    after = {"email": canonical, "reason": reason}
    # Whose account it was meant for sees it among the activity.
    target = None if user_id is None else public_id("usr", user_id)
    audit.record(actor, "sign_in.failed", target_type="user", target_id=target, after=after)
