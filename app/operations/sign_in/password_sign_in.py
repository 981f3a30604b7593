"""Signing in with a password."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from msgspec import Struct
from sqlalchemy import bindparam, select, update

from app.fast_path.compiled_query import CompiledQuery
from app.models.base import has_key
from app.models.session import KnownBrowser
from app.models.user import ACTIVE, User
from app.operations.directory.lookups import get_organization_by_id
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.sign_in import known_browsers, sign_in_limits
from app.operations.sign_in.passwords import verify_password
from app.operations.sign_in.sign_in import (
    IS_KNOWN_BROWSER,
    LOCK_USER,
    Browser,
    SecondStepRequired,
    SignedIn,
    complete_for_locked_user,
)
from app.operations.store import audit, clock, rate_limits
from app.operations.store.transactions import transaction
from app.rules.actor import Actor
from app.rules.errors import Unavailable
from app.rules.identifiers import public_id
from app.rules.mail.email_addresses import canonical_email

SignInRefusalReason = Literal["mismatch", "wait", "capped", "disabled", "reset", "suspended", "password_off"]


class SignInRefused(Struct, frozen=True):
    """The reason why a sign-in was rejected. ``attempts_left`` does not reveal whether the account exists."""

    reason: SignInRefusalReason
    attempts_left: int = 0
    retry_after: int = 0


class _Credentials(Struct, frozen=True):
    id: UUID
    password_hash: str | None
    is_active: bool
    has_blocked_password: bool
    password_changed_at: datetime | None


_FIND_ACCOUNT = CompiledQuery(
    select(
        User.id,
        User.password_hash,
        User.status,
        User.password_changed_at,
        User.created_at,
        KnownBrowser.id.label("browser_id"),
    )
    .outerjoin(KnownBrowser, IS_KNOWN_BROWSER)
    .where(
        User.organization_id == bindparam("organization_id"),
        User.email_canonical == bindparam("email_canonical"),
    )
)
_LOCK_WITH_PASSWORD = CompiledQuery(
    LOCK_USER.add_columns(User.password_changed_at).where(User.password_hash.is_not(None)).with_for_update()
)


_RENEW_HASH = CompiledQuery(
    update(User)
    .where(has_key(User, bindparam("of_organization"), bindparam("of_user")))
    .values(password_hash=bindparam("password_hash"), password_scheme=None)
)


def sign_in(
    organization_id: str,
    email: str,
    password: str,
    *,
    ip_address: str | None = None,
    request_id: str | None = None,
    browser: Browser = Browser(),
) -> SignedIn | SecondStepRequired | SignInRefused:
    """Sign a user in with a password.

    A wrong password is a result, not an exception. Failures count towards the limits in ``sign_in_limits``. Raises
    Unavailable when too many passwords are being hashed, or hashing would have to wait for over two seconds. Audit: as
    ``complete_first_factor``, or ``sign_in.failed``, sampled once an account exceeds its limit.
    """
    organization = get_organization_by_id(organization_id, fresh=False)
    if not _accepts_passwords(organization):
        # Another machine may have changed that a moment ago.
        organization = get_organization_by_id(organization_id)
    if not organization.is_active:
        return SignInRefused("suspended")
    if not _accepts_passwords(organization):
        return SignInRefused("password_off")
    canonical = canonical_email(email)
    account, known_browser_id = _find_account(organization, canonical or "", browser.known_cookie)
    attempt = sign_in_limits.claim_password_attempt(
        organization, email, ip_address=ip_address, browser=known_browser_id
    )
    result = attempt.result
    if result.retry_after:
        return SignInRefused("capped" if attempt.is_capped else "wait", retry_after=result.retry_after)
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
            browser=browser,
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
    return SignInRefused(reason, attempts_left=result.attempts_left, retry_after=result.next_wait)


def _accepts_passwords(organization: OrganizationSnapshot) -> bool:
    return organization.is_active and bool(organization.settings["authentication"]["password"]["enabled"])


def _find_account(
    organization: OrganizationSnapshot, canonical: str, known_cookie: str
) -> tuple[_Credentials | None, UUID | None]:
    """Find the account with the email, and its known browser among the cookie's values."""
    row = _FIND_ACCOUNT.first(
        organization_id=organization.id,
        email_canonical=canonical,
        **known_browsers.cookie_parameters(organization.id, known_cookie, clock.now()),
    )
    if row is None:
        return None, None
    is_blocked = organization.blocks_password(row.password_changed_at, row.created_at)
    account = _Credentials(
        row.id, row.password_hash, row.status == ACTIVE, is_blocked, row.password_changed_at
    )
    return account, row.browser_id


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
    """Complete the sign-in, or return None if the password or the status changed after the hash was read.

    A sign-in at the same time may have renewed the hash: the password is still the same.
    """
    row = _LOCK_WITH_PASSWORD.first(organization_id=organization.id, user_id=account.id)
    if row is None or row.password_changed_at != account.password_changed_at:
        return None
    if renewed_hash:
        _RENEW_HASH.write(of_organization=organization.id, of_user=account.id, password_hash=renewed_hash)
    return complete_for_locked_user(
        actor, organization, account.id, row, amr=("pwd",), browser=browser, attempts=attempts
    )


@transaction
def _record_failure(
    actor: Actor, canonical: str | None, reason: SignInRefusalReason, user_id: UUID | None
) -> None:
    # Record only what looks like an email address, because users sometimes type a password into the wrong field.
    after = {"email": canonical, "reason": reason}
    # With the user as target, the account's owner sees the attempt in the activity list.
    target = None if user_id is None else public_id("usr", user_id)
    audit.record(actor, "sign_in.failed", "user", target, after=after)
