"""Sign-ins that wait: the first proof was given, in this browser, and more is asked for."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import ColumnElement, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from app.extensions import db
from app.models.second_factor import PendingSignIn, SecondFactorTry
from app.models.session import KnownBrowser
from app.models.user import ACTIVE, User
from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.sign_in.known_browsers import find_browser_with_second_factor
from app.operations.sign_in.second_factors import decide_mfa_of_user, find_methods_of_user
from app.operations.store import clock
from app.operations.store.transactions import count_changed, current_unit_of_work, read, transaction
from app.rules.actor import Actor
from app.rules.errors import NotFound
from app.rules.identifiers import new_id
from app.rules.sign_in.lockout import Lockout
from app.rules.sign_in.second_factors import MfaRequirement
from app.rules.token_values import PENDING_SIGN_IN, digest, new_token, parse_token

PENDING_LIFETIME = timedelta(minutes=10)
MAX_PENDING_PER_USER = 50
"""Open ones in browsers that are not known, and in each that is: whoever knows the password and begins again and again
must neither fill the table nor end what the owner has begun where they are known."""


@dataclass(frozen=True, slots=True)
class PendingSignInRecord:
    """Who has given which proofs so far, and until when the rest may follow.

    ``known_browser_id`` is the browser that it was begun in, where its owner has given a second factor before.
    """

    id: UUID
    organization_id: str
    user_id: UUID
    email: str
    name: str
    amr: tuple[str, ...]
    expires_at: datetime
    known_browser_id: UUID | None = None

    def person(self, stranger: Actor) -> Actor:
        """Who has given the first proof, at the stranger's address; not signed in."""
        return replace(stranger, kind="user", user_id=self.user_id, label=self.email, amr=self.amr)


class SignInEnded(NotFound):
    """The sign-in waits no more: it was finished, too many codes were wrong, or ten minutes have passed."""

    status = 400
    code = "sign_in_ended"

    def __init__(self) -> None:
        super().__init__("This sign-in has ended. Start again with your password.")


@transaction
def create_pending_sign_in(
    organization: OrganizationSnapshot, user_id: UUID, amr: tuple[str, ...], browser_id: str, known: str = ""
) -> tuple[str, datetime]:
    """(the token that the next page carries, when it ends); part of the unit that accepted the proof.

    ``known`` is the value of the browser's cookie of known browsers.
    """
    unit = current_unit_of_work()
    token: str = unit.stable_value("pending sign-in", lambda: new_token(PENDING_SIGN_IN, organization.id))
    now = clock.now()
    known_browser_id = find_browser_with_second_factor(organization.id, user_id, known)
    _make_room(organization.id, user_id, known_browser_id)
    db.session.add(
        PendingSignIn(
            organization_id=organization.id,
            id=unit.stable_value("pending sign-in id", new_id),
            digest=digest(token),
            user_id=user_id,
            browser_digest=_browser(browser_id),
            known_browser_id=known_browser_id,
            amr=" ".join(amr),
            created_at=now,
            expires_at=now + PENDING_LIFETIME,
        )
    )
    return token, now + PENDING_LIFETIME


@read
def find_pending_sign_in(
    organization: OrganizationSnapshot, token: str, browser_id: str
) -> PendingSignInRecord | None:
    """The sign-in that waits, begun in this browser, of somebody who may still sign in; None otherwise."""
    parsed = parse_token(token)
    if parsed is None or (parsed.kind, parsed.organization_id) != (PENDING_SIGN_IN, organization.id):
        return None
    if not organization.is_active:
        return None
    row = db.session.execute(
        select(PendingSignIn.__table__, User.email, User.name)
        .join(
            User, (User.organization_id == PendingSignIn.organization_id) & (User.id == PendingSignIn.user_id)
        )
        .where(
            PendingSignIn.organization_id == organization.id,
            PendingSignIn.digest == digest(token),
            PendingSignIn.browser_digest == _browser(browser_id),
            PendingSignIn.expires_at > clock.now(),
            User.status == ACTIVE,
        )
    ).first()
    if row is None:
        return None
    return PendingSignInRecord(
        row.id,
        organization.id,
        row.user_id,
        row.email,
        row.name,
        tuple(row.amr.split()),
        row.expires_at,
        row.known_browser_id,
    )


def get_pending_sign_in(
    organization: OrganizationSnapshot, token: str, browser_id: str
) -> PendingSignInRecord:
    """As ``find_pending``. Raises SignInEnded where that is None."""
    found = find_pending_sign_in(organization, token, browser_id)
    if found is None:
        raise SignInEnded
    return found


@transaction
def consume_pending_sign_in(pending: PendingSignInRecord) -> None:
    """It waits no more: this caller alone goes on, the row count decides. Raises SignInEnded."""
    used = count_changed(
        delete(PendingSignIn).where(
            PendingSignIn.organization_id == pending.organization_id,
            PendingSignIn.id == pending.id,
            PendingSignIn.expires_at > clock.now(),
        )
    )
    if used != 1:
        raise SignInEnded


@transaction
def delete_pending_sign_ins_of_user(organization_id: str, user_id: UUID) -> None:
    """No sign-in of the user waits any more: who they are has to be proved from the start."""
    count_changed(
        delete(PendingSignIn).where(
            PendingSignIn.organization_id == organization_id, PendingSignIn.user_id == user_id
        )
    )


@transaction
def delete_similar_pending_sign_ins(pending: PendingSignInRecord) -> None:
    """None of the user's that was begun as this one waits any more: in that known browser, or in those not known.

    Whoever guesses elsewhere does not end what the owner has begun where they are known.
    """
    count_changed(
        delete(PendingSignIn).where(
            PendingSignIn.organization_id == pending.organization_id,
            PendingSignIn.user_id == pending.user_id,
            _begun_in(pending.known_browser_id),
        )
    )


def _begun_in(known_browser_id: UUID | None) -> ColumnElement[bool]:
    if known_browser_id is None:
        return PendingSignIn.known_browser_id.is_(None)
    return PendingSignIn.known_browser_id == known_browser_id


def _make_room(organization_id: str, user_id: UUID, known_browser_id: UUID | None) -> None:
    standing = db.session.scalars(
        select(PendingSignIn.id)
        .where(
            PendingSignIn.organization_id == organization_id,
            PendingSignIn.user_id == user_id,
            _begun_in(known_browser_id),
        )
        .order_by(PendingSignIn.id.desc())
        .offset(MAX_PENDING_PER_USER - 1)
        .limit(1000)
    ).all()
    if standing:
        count_changed(
            delete(PendingSignIn).where(
                PendingSignIn.organization_id == organization_id, PendingSignIn.id.in_(standing)
            )
        )


def _browser(browser_id: str) -> bytes:
    return hashlib.sha256(browser_id.encode()).digest()


MAX_CONSECUTIVE_FAILURES = 5
"""Wrong codes in a row before a sign-in that waits is over, and the next one has to wait."""
MAX_TOTAL_FAILURES = 100
"""Wrong codes from browsers that are not known, however slowly they come."""
_MONTH = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class CodeAttempt:
    """Seconds to ``wait`` first, or the tries ``left`` after this one; ``is_capped``: waiting is not what helps."""

    wait: int
    left: int = 0
    is_capped: bool = False


@transaction
def claim_code_attempt(organization: OrganizationSnapshot, pending: PendingSignInRecord) -> CodeAttempt:
    """Without a wait it counts as wrong until it is forgiven. Part of the unit that judges the code."""
    lockout = Lockout.of(organization.settings).from_failure(MAX_CONSECUTIVE_FAILURES)
    if pending.known_browser_id is not None:
        known = _claim_known(organization.id, pending.known_browser_id, lockout)
        if known is not None:
            return known
    return _claim_unknown(organization.id, pending.user_id, lockout)


@transaction
def clear_code_failures(organization_id: str, user_id: UUID) -> None:
    """The counts start again, in every browser: a right code was given."""
    # Not deleted: those who wait for the row's lock would all insert it at once.
    count_changed(
        update(SecondFactorTry)
        .where(SecondFactorTry.organization_id == organization_id, SecondFactorTry.user_id == user_id)
        .values(failures=0, total=0)
    )
    count_changed(
        update(KnownBrowser)
        .where(
            KnownBrowser.organization_id == organization_id,
            KnownBrowser.user_id == user_id,
            KnownBrowser.code_failures > 0,
        )
        .values(code_failures=0)
    )


def _claim_known(organization_id: str, browser_id: UUID, lockout: Lockout) -> CodeAttempt | None:
    """None when the browser was forgotten meanwhile."""
    row = db.session.execute(
        select(KnownBrowser.code_failures, KnownBrowser.code_failed_at)
        .where(KnownBrowser.organization_id == organization_id, KnownBrowser.id == browser_id)
        .with_for_update()
    ).first()
    if row is None:
        return None
    now = clock.now()
    wait = lockout.seconds_to_wait(row.code_failures, row.code_failed_at, now)
    if wait:
        return CodeAttempt(wait)
    counts = row.code_failed_at is not None and row.code_failed_at > now - _memory(lockout)
    failures = (row.code_failures if counts else 0) + 1
    count_changed(
        update(KnownBrowser)
        .where(KnownBrowser.organization_id == organization_id, KnownBrowser.id == browser_id)
        .values(code_failures=failures, code_failed_at=now)
    )
    return CodeAttempt(0, lockout.attempts_left(failures))


def _claim_unknown(organization_id: str, user_id: UUID, lockout: Lockout) -> CodeAttempt:
    now = clock.now()
    mine = (SecondFactorTry.organization_id == organization_id, SecondFactorTry.user_id == user_id)
    end = now + _MONTH + _memory(lockout)
    # The first statement takes the lock: what is read after it is what all before left.
    if not count_changed(update(SecondFactorTry).where(*mine).values(expires_at=end)):
        try:
            with db.session.begin_nested():
                db.session.execute(
                    insert(SecondFactorTry).values(
                        organization_id=organization_id,
                        user_id=user_id,
                        failures=0,
                        total=0,
                        failed_at=now,
                        expires_at=end,
                    )
                )
        except IntegrityError:
            count_changed(update(SecondFactorTry).where(*mine).values(expires_at=end))
    row = db.session.execute(
        select(SecondFactorTry.failures, SecondFactorTry.total, SecondFactorTry.failed_at)
        .where(*mine)
        .with_for_update()
    ).one()
    total = row.total if row.failed_at > now - _MONTH else 0
    if total >= MAX_TOTAL_FAILURES:
        return CodeAttempt(int((row.failed_at + _MONTH - now).total_seconds()) + 1, is_capped=True)
    wait = lockout.seconds_to_wait(row.failures, row.failed_at, now)
    if wait:
        return CodeAttempt(wait)
    failures = (row.failures if row.failed_at > now - _memory(lockout) else 0) + 1
    count_changed(
        update(SecondFactorTry).where(*mine).values(failures=failures, total=total + 1, failed_at=now)
    )
    return CodeAttempt(0, lockout.attempts_left(failures))


def _memory(lockout: Lockout) -> timedelta:
    """How long failures make the next wait longer."""
    return max(lockout.window, lockout.max_delay + timedelta(seconds=1))


@dataclass(frozen=True, slots=True)
class PendingSignInState:
    """What waits, for what by the settings as they are now, until when that may wait, and what the person has."""

    pending: PendingSignInRecord
    demand: MfaRequirement
    until: datetime | None
    methods: tuple[str, ...]

    def person(self, stranger: Actor) -> Actor:
        """Who has given the first proof, for what is done to their own account before the sign-in stands."""
        return self.pending.person(stranger)


@read
def find_pending_sign_in_state(
    organization: OrganizationSnapshot, token: str, browser_id: str
) -> PendingSignInState | None:
    """The sign-in of the token, begun in this browser; None when it has ended."""
    pending = find_pending_sign_in(organization, token, browser_id)
    if pending is None:
        return None
    verdict = decide_mfa_of_user(organization, pending.user_id, pending.amr)
    methods = find_methods_of_user(organization.id, pending.user_id)
    return PendingSignInState(pending, verdict.demand, verdict.until, methods)
