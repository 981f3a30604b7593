"""Importing: an organization out of its file, whole or not at all for everybody who looks.

Until the last row is in, the organization is a tombstone without a key: nobody signs in, no token counts, nothing is
listed. An import that was interrupted is begun again; what it had left goes first.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, BinaryIO

from sqlalchemy import Connection, Table, delete, insert, or_, select, update

from app.database import context, engines
from app.extensions import db
from app.models.base import Base
from app.models.organization import ACTIVE, DELETED, PURGED, SUSPENDED, Organization
from app.operations import view_changes
from app.operations.audit.chain import seal_rest
from app.operations.directory.lookups import current_limits, get_root_organization
from app.operations.maintenance.archive import (
    TRAVELS,
    ArchiveReader,
    ArchiveWriter,
    Unreadable,
    as_record,
    as_row,
    of_organization,
    travelling_tables,
)
from app.operations.maintenance.janitor import tables_of_an_organization
from app.operations.organizations.organizations import record_organization_event
from app.operations.store import clock, keyring, leases
from app.operations.store.transactions import count_changed, read, transaction
from app.rules.actor import Actor
from app.rules.errors import Conflict, InvalidInput, NotFound
from app.rules.identifiers import is_routing_key
from app.rules.organizations.organizations import slug_problem
from app.rules.organizations.settings import brought_in

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
    record_organization_event(inside, slug, "organization.exported", {}, {})


@contextmanager
def _snapshot() -> Iterator[Connection]:
    """One moment of the database, as its own dump tools take it: rows of minutes later would name what is not there."""
    with context(), engines()[0].connect() as plain:
        connection = plain.execution_options(read_only=True, stream_results=True)
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
    data_key = keyring.unwrap_data_key(organization_id, row.data_key)
    values = {name: getattr(row, name) for name in COLUMNS}
    written = {
        name: value.isoformat() if isinstance(value, datetime) else value for name, value in values.items()
    }
    return {**written, "data_key": data_key.hex()}


def _rows(connection: Connection, table: Any, organization_id: str) -> Iterator[Any]:
    statement = select(table).where(of_organization(table, organization_id)).order_by(*table.primary_key)
    with connection.execute(statement.execution_options(yield_per=_BATCH)) as result:
        yield from result


_IMPORT_BATCH = 200
_LEASE_SECONDS = 120
_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class Imported:
    """What came out of the file: rows by table. ``status`` is what the organization had when it was exported."""

    slug: str
    status: str
    rows: dict[str, int]


def import_organization(
    actor: Actor,
    stream: BinaryIO,
    passphrase: str,
    *,
    progress: Callable[[str, int], None] = lambda table, rows: None,
) -> Imported:
    """The organization of the file stands here, under the id and with the clients, secrets and keys that it had.

    People sign in again, clients go on with their refresh tokens; its issuer is this installation's. It may stand in
    the place of its own tombstone, of nothing else. Raises Unreadable for a file that was changed, cut or is of
    another release, or whose settings nobody here could choose, Conflict when the id is taken, and when another
    import of it is under way. Audit: ``organization.imported`` in its log and in root's.
    """
    actor.require("instance:write")
    reader = ArchiveReader(stream, passphrase)
    records = reader.records()
    organization = _opened(next(records, None))
    organization_id = str(organization["id"])
    job, me = f"{organization_id} import", secrets.token_hex(8)
    if not leases.acquire(job, me, _LEASE_SECONDS):
        raise Conflict("This organization is being imported at this moment.")
    try:
        _make_place(organization)
        _clear(organization_id, job, me)
        rows = _fill(organization_id, records, job, me, progress)
        _open_up(actor, organization)
        seal_rest(actor, organization_id)
    finally:
        leases.release(job, me)
    return Imported(organization["slug"], organization["status"], rows)


def _opened(record: Any) -> dict[str, Any]:
    organization = record.get("organization") if isinstance(record, dict) else None
    if not isinstance(organization, dict) or set(organization) != {*COLUMNS, "data_key"}:
        raise Unreadable("The file was made by a release that this one does not know.")
    with _malformed():
        values = as_row(
            [organization[name] for name in COLUMNS], COLUMNS, Base.metadata.tables["organizations"]
        )
        is_whole = (
            is_routing_key(values["id"])
            # It becomes part of an issuer and of paths.
            and slug_problem(values["slug"]) is None
            and values["status"] in {ACTIVE, SUSPENDED}
            and isinstance(values["settings"], dict)
            and isinstance(values["version"], int)
            and len(bytes.fromhex(organization["data_key"])) == _KEY_BYTES
        )
    if not is_whole:
        raise Unreadable("The file holds no organization that could be imported.")
    return {**values, "settings": _judged(values["settings"]), "data_key": organization["data_key"]}


def _judged(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the file, if somebody here could have chosen them. Raises Unreadable naming every wrong field."""
    bounds = current_limits()
    try:
        with _malformed():
            return brought_in(settings, bounds)
    except Unreadable:
        raise
    except InvalidInput as refusal:
        errors = [replace(error, field=f"settings.{error.field}") for error in refusal.errors]
        words = "The settings in the file are not accepted here: "
        listed = " ".join(f"{error.field}: {error.message}" for error in errors)
        raise Unreadable(f"{words}{listed}", errors=errors, code=Unreadable.code) from refusal


@contextmanager
def _malformed() -> Iterator[None]:
    """Whoever made the file may have put anything at all into it."""
    try:
        yield
    except (ValueError, TypeError, AttributeError) as error:
        raise Unreadable("The file holds something else than it should.") from error


@transaction
def _make_place(organization: Mapping[str, Any]) -> None:
    """A tombstone of this id and slug stands, and no living organization has either."""
    standing = db.session.execute(
        select(Organization.id, Organization.slug, Organization.status).where(
            or_(Organization.id == organization["id"], Organization.slug == organization["slug"])
        )
    ).all()
    if not standing:
        now = clock.now()
        row = {name: organization[name] for name in ("id", "slug", "name", "created_at", "created_by")}
        db.session.execute(
            insert(Organization).values(**row, is_root=False, status=PURGED, settings={}, updated_at=now)
        )
        return
    if [(row.id, row.slug, row.status) for row in standing] != [
        (organization["id"], organization["slug"], PURGED)
    ]:
        raise Conflict(
            f"The id {organization['slug']} stands here already. An organization is imported where it is not, or "
            "after it was purged.",
            code="id_taken",
        )


def _clear(organization_id: str, job: str, me: str) -> None:
    """What an interrupted import left is gone."""
    for table in tables_of_an_organization():
        while _clear_batch(table, organization_id, job, me):
            pass


@transaction
def _clear_batch(table: Table, organization_id: str, job: str, me: str) -> int:
    _keep(job, me)
    keys = list(table.primary_key.columns)
    own = table.c.organization_id == organization_id
    found = [tuple(row) for row in db.session.execute(select(*keys).where(own).limit(_IMPORT_BATCH))]
    for key in found:
        those = [column == value for column, value in zip(keys, key, strict=True)]
        db.session.execute(delete(table).where(*those), execution_options={"synchronize_session": False})
    return len(found)


def _fill(
    organization_id: str, records: Iterator[Any], job: str, me: str, progress: Callable[[str, int], None]
) -> dict[str, int]:
    rows: Counter[str] = Counter()
    table: Table | None = None
    columns: list[str] = []
    waiting: list[dict[str, Any]] = []
    for record in records:
        if isinstance(record, list) and table is not None:
            waiting.append(_row(record, columns, table, organization_id))
            if len(waiting) < _IMPORT_BATCH:
                continue
        if waiting and table is not None:
            rows[table.name] += _insert(table, waiting, job, me)
            waiting = []
        if isinstance(record, dict):
            if table is not None:
                progress(table.name, rows[table.name])
            if "rows" in record:
                # Read to the end: only the last frame says that nothing was cut off or added.
                if record["rows"] != dict(rows) or next(records, None) is not None:
                    raise Unreadable("The file does not hold the rows that it counts.")
                return dict(rows)
            table, columns = _table(record)
    raise Unreadable("The file was cut: its end is missing.")


def _table(record: Mapping[str, Any]) -> tuple[Table, list[str]]:
    with _malformed():
        name, columns = record.get("table"), record.get("columns")
        table = Base.metadata.tables.get(str(name)) if name in TRAVELS else None
        is_known = table is not None and isinstance(columns, list) and set(columns) <= set(table.c.keys())
    if table is None or not isinstance(columns, list) or not is_known:
        raise Unreadable("The file was made by a newer release: it holds what this one does not know.")
    return table, columns


def _row(record: list[Any], columns: list[str], table: Table, organization_id: str) -> dict[str, Any]:
    with _malformed():
        row = as_row(record, columns, table)
    if row.get("organization_id") != organization_id:
        raise Unreadable("The file holds rows of another organization.")
    return row


@transaction
def _insert(table: Table, rows: list[dict[str, Any]], job: str, me: str) -> int:
    _keep(job, me)
    db.session.execute(insert(table), rows)
    return len(rows)


def _keep(job: str, me: str) -> None:
    if not leases.renew(job, me, _LEASE_SECONDS):
        raise Conflict("Another import of this organization has taken over.")


@transaction
def _open_up(actor: Actor, organization: Mapping[str, Any]) -> None:
    """The organization is what it was: its key is wrapped under this installation's, and views hear of it."""
    organization_id = organization["id"]
    now = clock.now()
    values = {name: organization[name] for name in COLUMNS if name not in {"id", "slug", "version"}}
    changed = count_changed(
        update(Organization)
        .where(Organization.id == organization_id, Organization.status == PURGED)
        .values(
            **values,
            version=Organization.version + organization["version"] + 1,
            data_key=keyring.wrap_data_key(organization_id, bytes.fromhex(organization["data_key"])),
            updated_at=now,
            deleted_at=None,
            purge_at=None,
        )
    )
    if changed != 1:
        raise Conflict("The organization was changed at the same moment.")
    keyring.clear_cached_keys(organization_id)
    view_changes.mark(organization_id)
    # From root, so that its log knows too.
    root = Actor.system(get_root_organization().id, actor.label) if actor.kind == "system" else actor
    inside = root.acting_in(organization_id, root.permissions)
    record_organization_event(
        inside, organization["slug"], "organization.imported", {}, {"name": organization["name"]}
    )
