"""Imports are worked on: in the background by one elected worker, a part of each in turn, or by the command line."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from sqlalchemy import Select, select

from app.extensions import db
from app.models.user import UNDER_WAY, UserImport
from app.operations.store import leases
from app.operations.store.transactions import read
from app.operations.users import import_records
from app.operations.users.import_batches import ImportSuperseded, UploadExpired, process_next_part
from app.operations.users.import_records import ImportRecord, get_import, get_import_row
from app.rules.actor import Actor
from app.rules.errors import Forbidden, Unavailable
from app.rules.identifiers import public_id
from app.tenant_fence import ACROSS

LEASE = "user-imports"
LEASE_SECONDS = 30
POLL_INTERVAL_SECONDS = 4.0
_LONGEST_PAUSE_SECONDS = 0.5
_log = logging.getLogger("gatehouse.imports")


def process_due_imports(actor: Actor, *, holder: str) -> int:
    """The imports that wait are brought in, those of one organization no sooner than others'; returns the parts done.

    Nothing is done when another worker is at it; should that one die, its lease ends and the next goes on where it
    stopped. Between two parts it rests as long as the first one took: people sign in meanwhile.
    """
    actor.require("instance:write")
    if not _is_any_due() or not leases.acquire(LEASE, holder, LEASE_SECONDS):
        return 0
    done = 0
    try:
        while (job := _next_due()) is not None and leases.renew(LEASE, holder, LEASE_SECONDS):
            started = time.monotonic()
            _work_or_fail(job)
            done += 1
            time.sleep(min(time.monotonic() - started, _LONGEST_PAUSE_SECONDS))
    finally:
        leases.release(LEASE, holder)
    return done


def run_import(
    actor: Actor, import_id: str, *, progress: Callable[[ImportRecord], None] = lambda record: None
) -> ImportRecord:
    """The import is brought in here and now; ``progress`` is told after each part. Returns how it ended.

    Raises Forbidden, NotFound, and Superseded when another process works on it.
    """
    actor.require("users:write")
    while (record := get_import(actor, import_id)).is_under_way:
        progress(record)
        _work(_row(actor, import_id), alone=True)
    progress(record)
    return record


def _work_or_fail(job: UserImport) -> None:
    """One import that a fault of ours stops must not stop the others behind it."""
    try:
        _work(job)
    except Unavailable:
        raise
    except Exception:  # noqa: BLE001 - it is told in the log and in the import itself
        _log.exception("the import %s cannot go on", public_id("imp", job.id))
        _give_up(job, "A fault of this service: its log says more.")


def _work(job: UserImport, *, alone: bool = False) -> None:
    try:
        process_next_part(job)
    except ImportSuperseded:
        if alone:
            raise
    except (Forbidden, UploadExpired) as refusal:
        _give_up(job, refusal.description)


def _give_up(job: UserImport, reason: str) -> None:
    import_records.fail_import(Actor.system(job.organization_id, "import"), job.id, reason)
    import_records.remove_parts(job.organization_id, job.id)


@read
def _row(actor: Actor, import_id: str) -> UserImport:
    return _detached(get_import_row(actor, import_id))


@read
def _is_any_due() -> bool:
    return db.session.scalar(_due().limit(1)) is not None


@read
def _next_due() -> UserImport | None:
    row = db.session.scalar(_due().limit(1))
    return _detached(row) if row is not None else None


def _due() -> Select[UserImport]:
    return (
        select(UserImport)
        .where(UserImport.status.in_(UNDER_WAY), UserImport.is_foreground.is_(False))
        .order_by(UserImport.worked_at)
        .execution_options(**ACROSS)
    )


def _detached(row: Any) -> UserImport:
    """The row with what was read, for use outside of the transaction."""
    db.session.expunge(row)
    detached: UserImport = row
    return detached
