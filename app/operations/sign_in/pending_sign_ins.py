"""Pending sign-ins: the first factor was accepted in a browser, and another step has to follow there.

Also counts invalid codes, which limits guessing of second factors.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import ColumnElement, delete, select, update

from app.extensions import db
from app.models.base import has_key, is_of_user, is_same
from app.models.second_factor import PendingSignIn, SecondFactorTry
from app.models.session import KnownBrowser
from app.models.user import ACTIVE, User
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.sign_in.known_browsers import find_browser_with_second_factor
from app.operations.sign_in.second_factors import decide_mfa_of_user, find_methods_of_user
from app.operations.store import clock
from app.operations.store.rows import make_record
from app.operations.store.transactions import (
    count_changed,
    current_unit_of_work,
    insert_or_update,
    read,
    transaction,
)
from app.rules.actor import Actor
from app.rules.errors import HasDefaultText, NotFound
from app.rules.identifiers import PENDING_SIGN_IN, digest, is_token_of, new_id, new_token
from app.rules.languages.translation import lazy_gettext
from app.rules.sign_in.passwords import Lockout
from app.rules.sign_in.second_factors import MfaRequirement

PENDING_LIFETIME = timedelta(minutes=10)
MAX_PENDING_PER_USER = 50
"""Per known browser, and for all unknown browsers together, so that someone who knows the password can
neither fill the table nor end the owner's sign-in in a known browser."""
MAX_CONSECUTIVE_FAILURES = 5
"""Incorrect codes in a row that end a pending sign-in and delay the next."""
MAX_TOTAL_FAILURES = 100
"""Incorrect codes from unknown browsers within a month."""
_MONTH = timedelta(days=30)


class ProviderSession(Struct, frozen=True):
    """The sign-in at an identity provider on which one here rests, and which ends it (Back-Channel Logout 1.0).

    ``sid`` is its name there, if it has one. ``authenticated_at`` is when the user was authenticated, if the provider
    says so.
    """

    provider_id: UUID
    sid: str | None = None
    authenticated_at: datetime | None = None


class PendingSignInRecord(Struct, frozen=True):
    """The user of a pending sign-in, the methods used so far (``amr``), and when it expires.

    ``known_browser_id`` is the known browser it was started in, if the user has given a second factor there
    before.
    """

    id: UUID
    organization_id: str
    user_id: UUID
    email: str
    name: str
    amr: tuple[str, ...]
    expires_at: datetime
    known_browser_id: UUID | None = None
    provider_id: UUID | None = None
    provider_sid: str | None = None

    @property
    def provider(self) -> ProviderSession | None:
        """Return the sign-in at an identity provider that was the first step."""
        return None if self.provider_id is None else ProviderSession(self.provider_id, self.provider_sid)

    def to_actor(self, anonymous: Actor) -> Actor:
        """Return the user as an actor with the request's details. They are not signed in yet."""
        return replace(anonymous.as_user(self.user_id, self.email), amr=self.amr)


class SignInEnded(HasDefaultText, NotFound):
    """The pending sign-in was completed, had too many incorrect codes, or expired after ten minutes."""

    status = 400
    code = "sign_in_ended"
    default_description = lazy_gettext("Your sign-in has expired. Start again with your password.")


class CodeAttempt(Struct, frozen=True):
    """An attempt to enter a code: seconds to wait first, or the attempts left after this one.

    ``is_capped`` means that waiting does not help. ``next_wait`` is how many seconds have to pass before the next
    attempt, if this one fails.
    """

    retry_after: int
    attempts_left: int = 0
    is_capped: bool = False
    next_wait: int = 0


class PendingSignInState(Struct, frozen=True):
    """A pending sign-in with what it still needs under the current settings, and the user's second factors.

    ``until`` is when an offered second factor becomes required.
    """

    pending: PendingSignInRecord
    requirement: MfaRequirement
    until: datetime | None
    methods: tuple[str, ...]


@transaction
def create_pending_sign_in(
    organization: OrganizationSnapshot,
    user_id: UUID,
    amr: tuple[str, ...],
    browser_id: str,
    known_cookie: str = "",
    provider: ProviderSession | None = None,
) -> tuple[str, datetime]:
    """Create a pending sign-in and return its token and expiry.

    Call it in the transaction that accepted the first factor. ``known_cookie`` is the value of the known-browsers
    cookie. ``provider`` is where the first factor was given, if that was an identity provider.
    """
    unit = current_unit_of_work()
    token: str = unit.stable_value("pending sign-in", lambda: new_token(PENDING_SIGN_IN, organization.id))
    now = clock.now()
    known_browser_id = find_browser_with_second_factor(organization.id, user_id, known_cookie)
    _enforce_pending_limit(organization.id, user_id, known_browser_id)
    db.session.add(
        PendingSignIn(
            organization_id=organization.id,
            id=unit.stable_value("pending sign-in id", new_id),
            digest=digest(token),
            user_id=user_id,
            browser_digest=_browser_digest(browser_id),
            known_browser_id=known_browser_id,
            amr=" ".join(amr),
            provider_id=None if provider is None else provider.provider_id,
            provider_sid=None if provider is None else provider.sid,
            created_at=now,
            expires_at=now + PENDING_LIFETIME,
        )
    )
    return token, now + PENDING_LIFETIME


@read
def find_pending_sign_in(
    organization: OrganizationSnapshot, token: str, browser_id: str
) -> PendingSignInRecord | None:
    """Find the pending sign-in of an active user that was started in this browser."""
    if not organization.is_active or not is_token_of(token, PENDING_SIGN_IN, organization.id):
        return None
    row = db.session.execute(
        select(PendingSignIn.__table__, User.email, User.name)
        .join(User, is_same(User.id, PendingSignIn.user_id))
        .where(
            PendingSignIn.organization_id == organization.id,
            PendingSignIn.digest == digest(token),
            PendingSignIn.browser_digest == _browser_digest(browser_id),
            PendingSignIn.expires_at > clock.now(),
            User.status == ACTIVE,
        )
    ).first()
    if row is None or organization.is_before_restore(row.created_at):
        return None
    # Otherwise, a bulk revocation would end a session that is there, but not one about to start.
    if organization.invalidates_session(row.created_at):
        return None
    return make_record(PendingSignInRecord, row, amr=tuple(row.amr.split()))


def get_pending_sign_in(
    organization: OrganizationSnapshot, token: str, browser_id: str
) -> PendingSignInRecord:
    """Return the pending sign-in as ``find_pending_sign_in`` does. Raises SignInEnded."""
    found = find_pending_sign_in(organization, token, browser_id)
    if found is None:
        raise SignInEnded
    return found


@transaction
def consume_pending_sign_in(pending: PendingSignInRecord) -> None:
    """Delete the pending sign-in so that only this caller can complete it. Raises SignInEnded."""
    used = count_changed(
        delete(PendingSignIn).where(
            has_key(PendingSignIn, pending.organization_id, pending.id),
            PendingSignIn.expires_at > clock.now(),
        )
    )
    if used != 1:
        raise SignInEnded


@transaction
def delete_pending_sign_ins_of_user(
    organization_id: str, user_id: UUID, *, before: datetime | None = None
) -> None:
    """Delete the user's pending sign-ins, so that they have to start again with the first factor.

    With ``before``, only those that began earlier.
    """
    condition = is_of_user(PendingSignIn, organization_id, user_id)
    if before is not None:
        condition &= PendingSignIn.created_at < before
    count_changed(delete(PendingSignIn).where(condition))


@transaction
def delete_pending_sign_ins_with_provider(
    organization_id: str, provider_id: UUID, *conditions: ColumnElement[bool]
) -> None:
    """Delete the matching pending sign-ins whose first factor was given at this identity provider."""
    of_provider = (PendingSignIn.organization_id == organization_id) & (
        PendingSignIn.provider_id == provider_id
    )
    count_changed(delete(PendingSignIn).where(of_provider, *conditions))


@transaction
def delete_similar_pending_sign_ins(pending: PendingSignInRecord) -> None:
    """Delete the user's pending sign-ins in the same known browser, or in all unknown browsers.

    Someone who guesses codes elsewhere cannot end a sign-in that the owner started in a known browser.
    """
    count_changed(
        delete(PendingSignIn).where(
            is_of_user(PendingSignIn, pending.organization_id, pending.user_id),
            _started_in(pending.known_browser_id),
        )
    )


@transaction
def claim_code_attempt(organization: OrganizationSnapshot, pending: PendingSignInRecord) -> CodeAttempt:
    """Count an attempt as failed in advance, unless it has to wait.

    Call it in the transaction that checks the code. ``clear_code_failures`` resets the count after a correct
    one.
    """
    lockout = Lockout.of(organization.settings).with_max_failures(MAX_CONSECUTIVE_FAILURES)
    if pending.known_browser_id is not None:
        claimed = _claim_in_known_browser(organization.id, pending.known_browser_id, lockout)
        if claimed is not None:
            return claimed
    return _claim_in_unknown_browser(organization.id, pending.user_id, lockout)


@transaction
def clear_code_failures(organization_id: str, user_id: UUID) -> None:
    """Reset the counts of all browsers after a correct code."""
    # The row is updated, not deleted, because transactions waiting for its lock would otherwise all insert it at once.
    count_changed(
        update(SecondFactorTry)
        .where(is_of_user(SecondFactorTry, organization_id, user_id))
        .values(failures=0, total=0)
    )
    count_changed(
        update(KnownBrowser)
        .where(
            is_of_user(KnownBrowser, organization_id, user_id),
            KnownBrowser.code_failures > 0,
        )
        .values(code_failures=0)
    )


@read
def find_pending_sign_in_state(
    organization: OrganizationSnapshot, token: str, browser_id: str
) -> PendingSignInState | None:
    """Find the pending sign-in of the token in this browser with its current requirements."""
    pending = find_pending_sign_in(organization, token, browser_id)
    if pending is None:
        return None
    decision = decide_mfa_of_user(organization, pending.user_id, pending.amr)
    methods = find_methods_of_user(organization.id, pending.user_id)
    return PendingSignInState(pending, decision.requirement, decision.until, methods)


def _started_in(known_browser_id: UUID | None) -> ColumnElement[bool]:
    if known_browser_id is None:
        return PendingSignIn.known_browser_id.is_(None)
    return PendingSignIn.known_browser_id == known_browser_id


def _enforce_pending_limit(organization_id: str, user_id: UUID, known_browser_id: UUID | None) -> None:
    excess = db.session.scalars(
        select(PendingSignIn.id)
        .where(
            is_of_user(PendingSignIn, organization_id, user_id),
            _started_in(known_browser_id),
        )
        .order_by(PendingSignIn.id.desc())
        .offset(MAX_PENDING_PER_USER - 1)
        .limit(1000)
    ).all()
    if excess:
        count_changed(
            delete(PendingSignIn).where(
                PendingSignIn.organization_id == organization_id, PendingSignIn.id.in_(excess)
            )
        )


def _browser_digest(browser_id: str) -> bytes:
    return hashlib.sha256(browser_id.encode()).digest()


def _claim_in_known_browser(organization_id: str, browser_id: UUID, lockout: Lockout) -> CodeAttempt | None:
    """Claim an attempt in a known browser, or return None if it was forgotten meanwhile."""
    row = db.session.execute(
        select(KnownBrowser.code_failures, KnownBrowser.code_failed_at)
        .where(has_key(KnownBrowser, organization_id, browser_id))
        .with_for_update()
    ).first()
    if row is None:
        return None
    now = clock.now()
    wait = lockout.seconds_to_wait(row.code_failures, row.code_failed_at, now)
    if wait:
        return CodeAttempt(wait)
    counts = row.code_failed_at is not None and row.code_failed_at > now - _failure_window(lockout)
    failures = (row.code_failures if counts else 0) + 1
    count_changed(
        update(KnownBrowser)
        .where(has_key(KnownBrowser, organization_id, browser_id))
        .values(code_failures=failures, code_failed_at=now)
    )
    return _allowed_attempt(lockout, failures, now)


def _claim_in_unknown_browser(organization_id: str, user_id: UUID, lockout: Lockout) -> CodeAttempt:
    now = clock.now()
    own_row = is_of_user(SecondFactorTry, organization_id, user_id)
    end = now + _MONTH + _failure_window(lockout)
    # The first statement takes the row's lock, so that the next read sees the result of every earlier attempt.
    key = {"organization_id": organization_id, "user_id": user_id}
    insert_or_update(SecondFactorTry, key, {"expires_at": end}, failures=0, total=0, failed_at=now)
    row = db.session.execute(
        select(SecondFactorTry.failures, SecondFactorTry.total, SecondFactorTry.failed_at)
        .where(own_row)
        .with_for_update()
    ).one()
    total = row.total if row.failed_at > now - _MONTH else 0
    if total >= MAX_TOTAL_FAILURES:
        return CodeAttempt(int((row.failed_at + _MONTH - now).total_seconds()) + 1, is_capped=True)
    wait = lockout.seconds_to_wait(row.failures, row.failed_at, now)
    if wait:
        return CodeAttempt(wait)
    failures = (row.failures if row.failed_at > now - _failure_window(lockout) else 0) + 1
    count_changed(
        update(SecondFactorTry).where(own_row).values(failures=failures, total=total + 1, failed_at=now)
    )
    return _allowed_attempt(lockout, failures, now)


def _allowed_attempt(lockout: Lockout, failures: int, now: datetime) -> CodeAttempt:
    next_wait = lockout.seconds_to_wait(failures, now, now)
    return CodeAttempt(0, lockout.attempts_left(failures), next_wait=next_wait)


def _failure_window(lockout: Lockout) -> timedelta:
    """Return how long failures keep increasing the wait."""
    return max(lockout.window, lockout.max_delay + timedelta(seconds=1))
