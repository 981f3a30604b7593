"""How an import that was checked begins in earnest, and how the command line finds one that was interrupted."""

from __future__ import annotations

from sqlalchemy import select, update

from app.extensions import db
from app.models.user_import import CHECKED, RUNNING, UNDER_WAY, UserImport
from app.operations import audit, clock
from app.operations.transaction import count_changed, on_commit, read, transaction
from app.operations.user_imports.endings import remove_refusals
from app.operations.user_imports.importers import document_of
from app.operations.user_imports.records import ImportRecord, record_of, row_of
from app.operations.user_imports.wake import may_be_due
from app.rules.actor import Actor
from app.rules.errors import Conflict
from app.rules.identifiers import public_id


@transaction
def start_import(actor: Actor, import_id: str) -> ImportRecord:
    """What a dry run has checked is brought in, by the rights of who starts it.

    Raises Forbidden, NotFound, Conflict unless it is checked and waits. Audit: ``user_import.started``.
    """
    actor.require("users:write")
    row = row_of(actor, import_id)
    changed = count_changed(
        update(UserImport)
        .where(
            UserImport.organization_id == row.organization_id,
            UserImport.id == row.id,
            UserImport.status == CHECKED,
        )
        .values(
            status=RUNNING,
            # Nobody sits in front of it now, even if it was the command line that checked it.
            is_foreground=False,
            importer=document_of(actor),
            worked_at=clock.now(),
            ended_at=None,
            **dict.fromkeys(("position", "created", "updated", "skipped", "refused"), 0),
        )
    )
    if not changed:
        raise Conflict(
            "Only an import that was checked, and nothing else since, can begin.", code="not_checked"
        )
    remove_refusals(row.organization_id, row.id)
    audit.record(
        actor,
        "user_import.started",
        target_type="user_import",
        target_id=public_id("imp", row.id),
        after={"name": row.name, "rows": row.total, "on_existing": row.on_existing},
    )
    on_commit(may_be_due.set)
    db.session.expire_all()
    return record_of(row_of(actor, import_id))


@read
def find_interrupted(actor: Actor, digest: str) -> ImportRecord | None:
    """The import of the file with this SHA-256 that the command line began and did not end. Raises Forbidden."""
    actor.require("users:write")
    row = db.session.scalar(
        select(UserImport)
        .where(
            UserImport.organization_id == actor.organization_id,
            UserImport.status.in_(UNDER_WAY),
            UserImport.is_foreground,
            UserImport.digest == bytes.fromhex(digest),
        )
        .order_by(UserImport.id.desc())
        .limit(1)
    )
    return record_of(row) if row is not None else None
