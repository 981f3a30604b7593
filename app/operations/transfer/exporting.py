"""Exporting: an organization as it was at one moment, in one sealed file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, BinaryIO

from sqlalchemy import Connection, select

from app.database import context, engines
from app.extensions import db
from app.models.organization import DELETED, PURGED, Organization
from app.operations import clock, keyring
from app.operations.tenancy.organization_events import record_event
from app.operations.transaction import read, transaction
from app.operations.transfer.archive import ArchiveWriter
from app.operations.transfer.contents import as_record, of_organization, travelling_tables
from app.rules.actor import Actor
from app.rules.errors import Conflict, NotFound

_BATCH = 500
COLUMNS = (
    "id", "slug", "name", "status", "version", "settings", "settings_version", "settings_updated_at",
    "settings_updated_by", "created_at", "created_by", "tokens_valid_from",
    "tokens_not_before", "sessions_not_before", "factor_demanded_at", "admins_factor_demanded_at",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Exported:
    """What went into the file: rows by table, at the moment ``at``."""

    slug: str
    at: datetime
    rows: dict[str, int]


def export_organization(
    actor: Actor,
    slug: str,
    stream: BinaryIO,
    passphrase: str,
    *,
    progress: Callable[[str, int], None] = lambda table, rows: None,
) -> Exported:
    """The organization's people, clients, secrets, keys, grants and audit log are in the stream, sealed.

    The file holds what one snapshot of the database held; ``progress`` hears of each table's rows. Who goes on working
    in the organization afterwards works beside the file: suspend it first to move it. Raises NotFound, Conflict for
    root and for a deleted one, InvalidInput for a short passphrase. Audit: ``organization.exported``, committed before
    anything is written.
    """
    actor.require("instance:write")
    organization_id, is_root, status = _look(slug)
    if is_root:
        raise Conflict("The root organization belongs to its installation and cannot be exported.")
    if status == DELETED:
        raise Conflict("The organization is deleted. Restore it first.", code="deleted")
    at = clock.now()
    writer = ArchiveWriter(stream, passphrase, {"organization": slug, "exported_at": at.isoformat()})
    _note(actor, organization_id, slug)
    rows: Counter[str] = Counter()
    with _snapshot() as connection:
        writer.write({"organization": _organization(connection, organization_id)})
        for table in travelling_tables():
            writer.write({"table": table.name, "columns": [column.name for column in table.columns]})
            for row in _rows(connection, table, organization_id):
                writer.write(as_record(row, table))
                rows[table.name] += 1
            progress(table.name, rows[table.name])
        writer.write({"rows": dict(rows)})
    writer.close()
    return Exported(slug, at, dict(rows))


@read
def _look(slug: str) -> tuple[str, bool, str]:
    row = db.session.execute(
        select(Organization.id, Organization.is_root, Organization.status).where(
            Organization.slug == slug, Organization.status != PURGED
        )
    ).first()
    if row is None:
        raise NotFound("There is no such organization.")
    return row.id, row.is_root, row.status


@transaction
def _note(actor: Actor, organization_id: str, slug: str) -> None:
    inside = actor.acting_in(organization_id, actor.permissions)
    record_event(inside, slug, "organization.exported", {}, {})


@contextmanager
def _snapshot() -> Iterator[Connection]:
    """One moment of the database, as its own dump tools take it: rows of minutes later would name what is not there."""
    with context(), engines()[0].connect() as plain:
        connection = plain.execution_options(reads_only=True, stream_results=True)
        # It never goes back to the pool: whoever got it next would read by these rules. They are set by hand, since
        # the option of the library is taken back from whatever connection has this one's place in the pool later.
        connection.detach()
        if connection.dialect.name != "sqlite":
            # SQLite's transactions are snapshots as they are.
            connection.exec_driver_sql("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            # What holds for the session from the next transaction on is not taken back with this one.
            connection.rollback()
        with connection.begin():
            yield connection


def _organization(connection: Connection, organization_id: str) -> dict[str, Any]:
    table = Organization.__table__
    row = connection.execute(select(table).where(table.c.id == organization_id)).one()
    data_key = keyring.unwrap(organization_id, row.data_key)
    values = {name: getattr(row, name) for name in COLUMNS}
    written = {
        name: value.isoformat() if isinstance(value, datetime) else value for name, value in values.items()
    }
    return {**written, "data_key": data_key.hex()}


def _rows(connection: Connection, table: Any, organization_id: str) -> Iterator[Any]:
    statement = select(table).where(of_organization(table, organization_id)).order_by(*table.primary_key)
    with connection.execute(statement.execution_options(yield_per=_BATCH)) as result:
        yield from result
