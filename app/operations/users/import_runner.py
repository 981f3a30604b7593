"""Running imports, in the background by one elected worker or in the foreground by the command line."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import UUID

from sqlalchemy import select, update

from app.database import ACROSS
from app.extensions import db
from app.models.base import has_key
from app.models.user import IN_PROGRESS, UserImport
from app.operations.directory.lookups import get_organization_by_id, is_served_here
from app.operations.store import leases
from app.operations.store.transactions import count_changed, read, transaction
from app.operations.users import import_records
from app.operations.users.import_batches import ImportSuperseded, UploadExpired, process_next_part
from app.operations.users.import_records import ImportRecord, get_import, get_import_row
from app.rules.actor import Actor
from app.rules.errors import Forbidden, NotFound, Unavailable
from app.rules.identifiers import public_id

LEASE = "user-imports"
LEASE_SECONDS = 30
POLL_INTERVAL_SECONDS = 15.0
_MAX_PAUSE_SECONDS = 0.5
# Within this time after a sign-in, the imports of the session that it replaced have moved.
_MOVE_SECONDS = 1.0
_log = logging.getLogger("gatehouse.imports")


def process_due_imports(actor: Actor, *, holder: str) -> int:
    """Process the waiting imports part by part and return the number of parts done.

    The import that has waited longest is next, so that one organization cannot delay the others. Only the
    worker that has the lease does anything. If it dies, the lease expires and the next worker continues.
    Between parts it pauses as long as the last one took, to leave capacity for sign-ins.
    """
    actor.require("instance:write")
    if _next_due() is None or not leases.acquire(LEASE, holder, LEASE_SECONDS):
        return 0
    done = 0
    try:
        while (job := _next_due()) is not None and leases.renew(LEASE, holder, LEASE_SECONDS):
            started = time.monotonic()
            _process_or_fail(job)
            done += 1
            time.sleep(min(time.monotonic() - started, _MAX_PAUSE_SECONDS))
    finally:
        leases.release(LEASE, holder)
    return done


def run_import(
    actor: Actor, import_id: str, *, progress: Callable[[ImportRecord], None] = lambda record: None
) -> ImportRecord:
    """Run an import in this process and return its final record. ``progress`` is called after each part.

    Raises Forbidden, NotFound, and ImportSuperseded when another process works on it.
    """
    actor.require("users:write")
    while (record := get_import(actor, import_id)).is_under_way:
        progress(record)
        _process(_find_row(actor, import_id), alone=True)
    progress(record)
    return record


def move_imports(organization_id: str, from_session: UUID, to_session: UUID) -> None:
    """Move the imports that a session of the organization started to the one that replaced it.

    A user who signs in again, for example because something asks for a recent sign-in, has not ended them. It is not
    part of the sign-in's transaction, which would wait for a part that is being imported. Without the database they
    stop, as for a session that has ended.
    """
    with suppress(Unavailable, NotFound):
        _move_imports(organization_id, from_session, to_session)


@transaction
def _move_imports(organization_id: str, from_session: UUID, to_session: UUID) -> None:
    for owner_id, import_id, importer in _find_running_of_session(organization_id, from_session):
        count_changed(
            update(UserImport)
            .where(has_key(UserImport, owner_id, import_id), UserImport.status.in_(IN_PROGRESS))
            .values(importer=importer | {"session_id": str(to_session)})
        )


def _find_running_of_session(
    organization_id: str, session_id: UUID
) -> list[tuple[str, UUID, dict[str, Any]]]:
    columns = (UserImport.organization_id, UserImport.id, UserImport.importer)
    found = select(*columns).where(UserImport.status.in_(IN_PROGRESS), UserImport.is_foreground.is_(False))
    if get_organization_by_id(organization_id, fresh=False).is_root:
        # Users of root import into other organizations too.
        found = found.execution_options(**ACROSS)
    else:
        found = found.where(UserImport.organization_id == organization_id)
    rows = db.session.execute(found.with_for_update()).all()
    return [
        (row.organization_id, row.id, row.importer)
        for row in rows
        if row.importer.get("session_id") == str(session_id)
    ]


def _process_or_fail(job: UserImport) -> None:
    """Process a part, and let an unexpected error stop only this import."""
    try:
        _process(job)
    except Unavailable:
        raise
    except Exception:  # noqa: BLE001 - it is reported in the log and in the import itself
        _log.exception("import %s failed", public_id("imp", job.id))
        _fail(job, "Something went wrong on the server. The server log has the details.")


def _process(job: UserImport, *, alone: bool = False) -> None:
    try:
        process_next_part(job)
    except ImportSuperseded:
        if alone:
            raise
    except (Forbidden, UploadExpired) as error:
        if not _is_moved(job):
            _fail(job, error.description)


def _is_moved(job: UserImport) -> bool:
    """Return whether a sign-in has replaced the session that started the import since the row was read."""
    if job.importer.get("session_id") is None:
        return False
    time.sleep(_MOVE_SECONDS)
    return bool(_find_importer(job) != job.importer)


@read
def _find_importer(job: UserImport) -> Any:
    return db.session.scalar(
        select(UserImport.importer).where(has_key(UserImport, job.organization_id, job.id))
    )


def _fail(job: UserImport, reason: str) -> None:
    import_records.fail_import(Actor.system(job.organization_id, "import"), job.id, reason)
    import_records.remove_parts(job.organization_id, job.id)


@read
def _find_row(actor: Actor, import_id: str) -> UserImport:
    return _detached(get_import_row(actor, import_id))


@read
def _next_due() -> UserImport | None:
    row = db.session.scalar(
        select(UserImport)
        .where(
            UserImport.status.in_(IN_PROGRESS),
            UserImport.is_foreground.is_(False),
            is_served_here(UserImport.organization_id),
        )
        .order_by(UserImport.worked_at)
        .limit(1)
        .execution_options(**ACROSS)
    )
    return _detached(row) if row is not None else None


def _detached(row: UserImport) -> UserImport:
    """Detach the row, so that it can be used outside of the transaction."""
    db.session.expunge(row)
    return row
