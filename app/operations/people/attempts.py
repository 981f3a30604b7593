"""Failed attempts: counted in the database, so that limits hold for all workers and survive a restart.

An attempt is written before the password is looked at and taken back when it was right: so a thousand attempts at
once are not all judged by the same count.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import delete, func, select

from app.extensions import db
from app.models.session import Attempt
from app.operations import clock
from app.operations.transaction import current_unit, transaction
from app.rules.identifiers import new_id
from app.rules.people.lockout import Lockout


@dataclass(frozen=True, slots=True)
class Claim:
    """The answer to somebody who wants to try: ``wait`` seconds first, or now, with so many tries left after it."""

    bucket: bytes
    wait: int
    tries_left: int


def bucket_of(*parts: str) -> bytes:
    """The digest under which attempts at one thing are counted; the organization is a column of its own."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).digest()


@transaction
def claim_attempt(organization_id: str, bucket: bytes, lockout: Lockout) -> Claim:
    """The attempt is counted, unless one has to wait; those refused for the wait do not prolong it."""
    now = clock.now()
    failures, last = db.session.execute(
        select(func.count(), func.max(Attempt.at)).where(
            Attempt.organization_id == organization_id,
            Attempt.bucket == bucket,
            Attempt.at > now - lockout.window,
        )
    ).one()
    wait = lockout.seconds_to_wait(failures, last, now)
    if wait:
        return Claim(bucket, wait, 0)
    attempt_id: UUID = current_unit().once("attempt", new_id)
    db.session.add(
        Attempt(
            organization_id=organization_id,
            id=attempt_id,
            bucket=bucket,
            at=now,
            expires_at=now + lockout.window,
        )
    )
    return Claim(bucket, 0, lockout.tries_left(failures + 1))


@transaction
def forgive(organization_id: str, bucket: bytes) -> None:
    """The count starts again: whoever knew the password was no attacker."""
    db.session.execute(
        delete(Attempt).where(Attempt.organization_id == organization_id, Attempt.bucket == bucket)
    )
