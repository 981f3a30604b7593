"""Wrong codes: counted in one row, whose change decides who may try (MF-3).

For browsers that are not known it is one row a user, so that all who guess count together: after the fifth they wait,
twice as long each time, and after a hundred no code of theirs counts until the owner was there, or a month has passed
(NIST SP 800-63B-4 section 3.2.2). A browser in which the owner has given a second factor before is counted by itself,
in its own row: whoever knows the password and guesses elsewhere keeps its owner waiting nowhere (LK-1). It is not
enough that the browser is known: a new password makes one known, and whoever reads the mailbox could have many.

The row's lock makes those who guess at once wait for each other: each is judged by all that failed before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from sqlalchemy import insert, select, update
from sqlalchemy.exc import IntegrityError

from app.extensions import db
from app.models.second_factor import SecondFactorTry
from app.models.session import KnownBrowser
from app.operations import clock
from app.operations.directory import OrganizationView
from app.operations.second_factors.pending import PendingView
from app.operations.transaction import count_changed, transaction
from app.rules.people.lockout import Lockout

MOST_WRONG = 5
"""Wrong codes in a row before a sign-in that waits is over, and the next one has to wait."""
MOST_IN_ALL = 100
"""Wrong codes from browsers that are not known, however slowly they come."""
_MONTH = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Try:
    """Seconds to ``wait`` first, or the tries ``left`` after this one; ``is_capped``: waiting is not what helps."""

    wait: int
    left: int = 0
    is_capped: bool = False


@transaction
def claim_try(organization: OrganizationView, pending: PendingView) -> Try:
    """Without a wait it counts as wrong until it is forgiven. Part of the unit that judges the code."""
    lockout = Lockout.of(organization.settings).from_failure(MOST_WRONG)
    if pending.known_browser_id is not None:
        known = _claim_known(organization.id, pending.known_browser_id, lockout)
        if known is not None:
            return known
    return _claim_unknown(organization.id, pending.user_id, lockout)


@transaction
def forgive_tries(organization_id: str, user_id: UUID) -> None:
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


def _claim_known(organization_id: str, browser_id: UUID, lockout: Lockout) -> Try | None:
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
        return Try(wait)
    counts = row.code_failed_at is not None and row.code_failed_at > now - _memory(lockout)
    failures = (row.code_failures if counts else 0) + 1
    count_changed(
        update(KnownBrowser)
        .where(KnownBrowser.organization_id == organization_id, KnownBrowser.id == browser_id)
        .values(code_failures=failures, code_failed_at=now)
    )
    return Try(0, lockout.tries_left(failures))


def _claim_unknown(organization_id: str, user_id: UUID, lockout: Lockout) -> Try:
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
    if total >= MOST_IN_ALL:
        return Try(int((row.failed_at + _MONTH - now).total_seconds()) + 1, is_capped=True)
    wait = lockout.seconds_to_wait(row.failures, row.failed_at, now)
    if wait:
        return Try(wait)
    failures = (row.failures if row.failed_at > now - _memory(lockout) else 0) + 1
    count_changed(
        update(SecondFactorTry).where(*mine).values(failures=failures, total=total + 1, failed_at=now)
    )
    return Try(0, lockout.tries_left(failures))


def _memory(lockout: Lockout) -> timedelta:
    """How long failures make the next wait longer."""
    return max(lockout.window, lockout.max_delay + timedelta(seconds=1))
