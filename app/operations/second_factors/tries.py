"""Wrong codes: counted for each user in one row, whose change decides who may try (MF-3).

The row's lock makes those who guess at once wait for each other: each is judged by all that failed before it.
"""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from sqlalchemy import insert, select, update
from sqlalchemy.exc import IntegrityError

from app.extensions import db
from app.models.second_factor import SecondFactorTry
from app.operations import clock
from app.operations.directory import OrganizationView
from app.operations.transaction import count_changed, transaction
from app.rules.people.lockout import Lockout

MOST_WRONG = 5
"""Wrong codes in a row before a sign-in that waits is over, and the next one has to wait."""


@transaction
def claim_try(organization: OrganizationView, user_id: UUID) -> tuple[int, int]:
    """(seconds to wait first, tries left after this one); without a wait it counts as wrong until it is forgiven.

    Part of the unit that judges the code.
    """
    lockout = Lockout.of(organization.settings).from_failure(MOST_WRONG)
    now = clock.now()
    mine = (SecondFactorTry.organization_id == organization.id, SecondFactorTry.user_id == user_id)
    end = now + lockout.window + lockout.max_delay
    # The first statement takes the lock: what is read after it is what all before left.
    if not count_changed(update(SecondFactorTry).where(*mine).values(expires_at=end)):
        try:
            with db.session.begin_nested():
                db.session.execute(
                    insert(SecondFactorTry).values(
                        organization_id=organization.id,
                        user_id=user_id,
                        failures=0,
                        failed_at=now,
                        expires_at=end,
                    )
                )
        except IntegrityError:
            count_changed(update(SecondFactorTry).where(*mine).values(expires_at=end))
    row = db.session.execute(
        select(SecondFactorTry.failures, SecondFactorTry.failed_at).where(*mine).with_for_update()
    ).one()
    wait = lockout.seconds_to_wait(row.failures, row.failed_at, now)
    if wait:
        return wait, 0
    counts = row.failed_at > now - max(lockout.window, lockout.max_delay + timedelta(seconds=1))
    failures = (row.failures if counts else 0) + 1
    count_changed(update(SecondFactorTry).where(*mine).values(failures=failures, failed_at=now))
    return 0, lockout.tries_left(failures)


@transaction
def forgive_tries(organization_id: str, user_id: UUID) -> None:
    """The count starts again: a right code was given."""
    # Not deleted: those who wait for the row's lock would all insert it at once.
    count_changed(
        update(SecondFactorTry)
        .where(SecondFactorTry.organization_id == organization_id, SecondFactorTry.user_id == user_id)
        .values(failures=0)
    )
