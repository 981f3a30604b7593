"""How an import ends before its time, and how what was uploaded goes."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import delete, select, update

from app.extensions import db
from app.models.user_import import (
    CANCELLED,
    CHECKED,
    FAILED,
    UNDER_WAY,
    UPLOADING,
    UserImport,
    UserImportPart,
    UserImportRefusal,
)
from app.operations import audit, clock
from app.operations.transaction import count_changed, transaction
from app.operations.user_imports.records import ImportRecord, record_of, row_of
from app.rules.actor import Actor
from app.rules.errors import Conflict
from app.rules.identifiers import public_id

_AT_ONCE = 50
_FROM: tuple[str, ...] = (*UNDER_WAY, CHECKED)


def cancel_import(actor: Actor, import_id: str) -> ImportRecord:
    """Nothing more is brought in; who was brought in stays. What was uploaded is gone.

    Raises Forbidden, NotFound, Conflict when it has ended. Audit: ``user_import.cancelled``.
    """
    record = _cancel(actor, import_id)
    remove_parts(actor.organization_id, record.id)
    return record


def discard(actor: Actor, import_id: UUID) -> None:
    """An upload that never became an import leaves nothing; one that did stays as it is."""
    actor.require("users:write")
    if _take(actor.organization_id, import_id):
        remove_parts(actor.organization_id, import_id)
        _remove(actor.organization_id, import_id)


@transaction
def fail_import(actor: Actor, import_id: UUID, reason: str) -> None:
    """The import cannot go on, and says why; ``remove_parts`` follows. Audit: ``user_import.failed``."""
    here = actor.organization_id
    if _end(here, import_id, FAILED, UNDER_WAY, failure=reason[:300]):
        target = public_id("imp", import_id)
        audit.record(
            actor, "user_import.failed", target_type="user_import", target_id=target, after={"reason": reason}
        )


def remove_parts(organization_id: str, import_id: UUID) -> None:
    """What was uploaded is gone, some of it at a time."""
    while _remove_some(organization_id, import_id):
        pass


@transaction
def remove_refusals(organization_id: str, import_id: UUID) -> None:
    """The refusals of a dry run make way for those of the import."""
    count_changed(
        delete(UserImportRefusal).where(
            UserImportRefusal.organization_id == organization_id, UserImportRefusal.import_id == import_id
        )
    )


@transaction
def _cancel(actor: Actor, import_id: str) -> ImportRecord:
    actor.require("users:write")
    row = row_of(actor, import_id)
    if not _end(row.organization_id, row.id, CANCELLED, _FROM):
        raise Conflict("This import has ended already.", code="import_ended")
    counts = {"created": row.created, "updated": row.updated, "refused": row.refused}
    target = public_id("imp", row.id)
    audit.record(actor, "user_import.cancelled", target_type="user_import", target_id=target, after=counts)
    db.session.expire_all()
    return record_of(row_of(actor, import_id))


def _end(
    organization_id: str, import_id: UUID, status: str, before: tuple[str, ...], failure: str | None = None
) -> bool:
    now = clock.now()
    changed = count_changed(
        update(UserImport)
        .where(
            UserImport.organization_id == organization_id,
            UserImport.id == import_id,
            UserImport.status.in_(before),
        )
        .values(status=status, ended_at=now, failure=failure)
    )
    return changed == 1


@transaction
def _take(organization_id: str, import_id: UUID) -> bool:
    return _end(organization_id, import_id, CANCELLED, (UPLOADING,))


@transaction
def _remove(organization_id: str, import_id: UUID) -> None:
    count_changed(
        delete(UserImport).where(UserImport.organization_id == organization_id, UserImport.id == import_id)
    )


@transaction
def _remove_some(organization_id: str, import_id: UUID) -> int:
    whose = (UserImportPart.organization_id == organization_id, UserImportPart.import_id == import_id)
    numbers = db.session.scalars(select(UserImportPart.number).where(*whose).limit(_AT_ONCE)).all()
    if not numbers:
        return 0
    return count_changed(delete(UserImportPart).where(*whose, UserImportPart.number.in_(numbers)))
