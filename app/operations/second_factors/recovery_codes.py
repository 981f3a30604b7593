"""Recovery codes: each stands in for the second factor once; only their digests are kept (MF-4)."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import delete, func, insert, select, update

from app.extensions import db
from app.models.second_factor import RecoveryCode
from app.operations import clock
from app.operations.directory import OrganizationView
from app.operations.transaction import count_changed, current_unit, read, transaction
from app.rules.people.one_time_codes import new_recovery_code, read_recovery_code, recovery_digest


@read
def count_left(organization_id: str, user_id: UUID) -> int:
    """How many codes of the user were not used yet."""
    return (
        db.session.scalar(
            select(func.count()).where(
                RecoveryCode.organization_id == organization_id,
                RecoveryCode.user_id == user_id,
                RecoveryCode.used_at.is_(None),
            )
        )
        or 0
    )


@transaction
def make_codes(organization: OrganizationView, user_id: UUID) -> tuple[str, ...]:
    """New codes, as many as the settings say, clear in this answer alone; those before are void.

    Part of the change that audits it.
    """
    number = organization.settings["authentication"]["mfa"]["recovery_codes"]
    codes: tuple[str, ...] = current_unit().once(
        f"recovery codes {user_id}", lambda: tuple(new_recovery_code() for _ in range(number))
    )
    remove_codes(organization.id, user_id)
    now = clock.now()
    db.session.execute(
        insert(RecoveryCode),
        [
            {
                "organization_id": organization.id,
                "user_id": user_id,
                "digest": recovery_digest(code.replace("-", "")),
                "created_at": now,
            }
            for code in codes
        ],
    )
    return codes


@transaction
def make_first_codes(organization: OrganizationView, user_id: UUID) -> tuple[str, ...]:
    """New codes for somebody who has none, none for whoever has some; part of adding a second factor."""
    return () if _has_some(organization.id, user_id) else make_codes(organization, user_id)


@transaction
def use_code(organization_id: str, user_id: UUID, typed: str) -> bool:
    """Whether it is a code of the user that was not used before; it counts no more."""
    code = read_recovery_code(typed)
    if code is None:
        return False
    used = count_changed(
        update(RecoveryCode)
        .where(
            RecoveryCode.organization_id == organization_id,
            RecoveryCode.digest == recovery_digest(code),
            RecoveryCode.user_id == user_id,
            RecoveryCode.used_at.is_(None),
        )
        .values(used_at=clock.now())
    )
    return used == 1


@transaction
def remove_codes(organization_id: str, user_id: UUID) -> None:
    """No code of the user counts any more."""
    count_changed(
        delete(RecoveryCode).where(
            RecoveryCode.organization_id == organization_id, RecoveryCode.user_id == user_id
        )
    )


def _has_some(organization_id: str, user_id: UUID) -> bool:
    return (
        db.session.scalar(
            select(RecoveryCode.digest)
            .where(RecoveryCode.organization_id == organization_id, RecoveryCode.user_id == user_id)
            .limit(1)
        )
        is not None
    )
