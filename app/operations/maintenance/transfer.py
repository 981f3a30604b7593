"""Export an organization to an encrypted file, and import it into another installation.

Until the last row is imported and the audit log sealed, the organization is a tombstone: users cannot sign in, no token
is valid, and it is not listed. It has no key before the last row. An interrupted import is started again and first
deletes what the earlier one left.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, BinaryIO

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import ColumnElement, Connection, Table, insert, or_, select, update
from sqlalchemy.exc import DataError, IntegrityError

from app.database import context, engines
from app.extensions import db
from app.fast_path import cache_invalidation
from app.models.base import Base
from app.models.organization import ACTIVE, DELETED, PURGED, SUSPENDED, Organization
from app.operations.audit.chain import seal_all_events
from app.operations.directory.lookups import current_limits, get_root_organization
from app.operations.maintenance.archive import (
    EXPORTED_TABLES,
    ArchiveReader,
    ArchiveWriter,
    UnreadableArchive,
    list_exported_tables,
    organization_filter,
    row_to_record,
)
from app.operations.maintenance.batches import delete_by_key
from app.operations.maintenance.purge_rules import organization_tables
from app.operations.maintenance.received_rows import (
    read_row,
    read_values,
    reject_malformed,
    require_columns,
    require_sound_chain,
)
from app.operations.organizations.organizations import record_organization_event
from app.operations.store import clock, keyring, leases
from app.operations.store.transactions import count_changed, read, transaction
from app.rules.actor import Actor
from app.rules.clients.client_coherence import PKCE_REQUIRED
from app.rules.errors import Conflict, InvalidInput, NotFound
from app.rules.identifiers import is_routing_key
from app.rules.organizations.organizations import slug_problem
from app.rules.organizations.settings import (
    effective_settings,
    overridden_paths,
    put_at,
    validate_imported_settings,
    value_at,
)

_BATCH = 500
COLUMNS = (
    "id", "slug", "name", "status", "version", "settings", "settings_version", "settings_updated_at",
    "settings_updated_by", "created_at", "created_by", "tokens_valid_from",
    "tokens_not_before", "sessions_not_before", "restored_at", "secrets_not_before", "passwords_not_before",
    "factor_demanded_at", "admins_factor_demanded_at",
)  # fmt: skip

_PKCE = "oauth.pkce"
_IMPORT_BATCH = 200
# In memory a row takes up to thirty times its text.
_IMPORT_BYTES = 1 << 20
_LEFTOVER_RETENTION = timedelta(days=7)
_LEASE_SECONDS = 120
_KEY_BYTES = 32


class ExportResult(Struct, frozen=True):
    """Numbers of exported rows by table, at the time ``at``."""

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
) -> ExportResult:
    """Write the organization's users, clients, secrets, keys, grants and audit log to the stream, encrypted.

    The file contains one snapshot of the database. ``progress`` is called with the number of rows of each table.
    Changes made after the export are not in the file, so suspend the organization before moving it. Raises NotFound,
    Conflict for root and for a deleted organization, InvalidInput for a short passphrase. Audit:
    ``organization.exported``, committed before anything is written.
    """
    actor.require("instance:write")
    organization_id, is_root, status = _find_exportable(slug)
    if is_root:
        raise Conflict("The root organization cannot be exported.")
    if status == DELETED:
        raise Conflict("The organization is deleted. Restore it first.", code="deleted")
    at = clock.now()
    writer = ArchiveWriter(stream, passphrase, {"organization": slug, "exported_at": at.isoformat()})
    record_export(actor, organization_id, slug)
    rows: Counter[str] = Counter()
    with snapshot() as connection:
        writer.write({"organization": describe_organization(connection, organization_id)})
        for table in list_exported_tables():
            writer.write({"table": table.name, "columns": [column.name for column in table.columns]})
            for row in rows_of(connection, table, organization_id):
                writer.write(row_to_record(row, table))
                rows[table.name] += 1
            progress(table.name, rows[table.name])
        writer.write({"rows": dict(rows)})
    writer.close()
    return ExportResult(slug, at, dict(rows))


@read
def _find_exportable(slug: str) -> tuple[str, bool, str]:
    row = db.session.execute(
        select(Organization.id, Organization.is_root, Organization.status).where(
            Organization.slug == slug, Organization.status != PURGED
        )
    ).first()
    if row is None:
        raise NotFound("There is no such organization.")
    return row.id, row.is_root, row.status


@transaction
def record_export(actor: Actor, organization_id: str, slug: str) -> None:
    inside = actor.acting_in(organization_id, actor.permissions)
    record_organization_event(inside, slug, "organization.exported", {}, {})


@contextmanager
def snapshot() -> Iterator[Connection]:
    """Open a connection with one consistent snapshot of the database."""
    with context(), engines()[0].connect() as plain:
        connection = plain.execution_options(read_only=True, stream_results=True)
        # Detach the connection, so that the changed isolation level never returns to the pool. SQLAlchemy's option is
        # not used, because it would be reset on whichever connection replaces this one in the pool.
        connection.detach()
        if connection.dialect.name != "sqlite":
            # Transactions in SQLite are always snapshots.
            connection.exec_driver_sql("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            # The session's level applies from the next transaction on, and this rollback does not reset it.
            connection.rollback()
        with connection.begin():
            yield connection


def describe_organization(connection: Connection, organization_id: str) -> dict[str, Any]:
    table = Organization.__table__
    row = connection.execute(select(table).where(table.c.id == organization_id)).one()
    data_key = keyring.unwrap_data_key(organization_id, row.data_key)
    values = {name: getattr(row, name) for name in COLUMNS}
    # Written in full: a file without it was made by a release in which every client had to use PKCE.
    put_at(values["settings"], _PKCE, value_at(effective_settings(values["settings"]), _PKCE))
    values_as_json = {
        name: value.isoformat() if isinstance(value, datetime) else value for name, value in values.items()
    }
    return {**values_as_json, "data_key": data_key.hex()}


def rows_of(connection: Connection, table: Any, organization_id: str) -> Iterator[Any]:
    statement = select(table).where(organization_filter(table, organization_id)).order_by(*table.primary_key)
    with connection.execute(statement.execution_options(yield_per=_BATCH)) as result:
        yield from result


class ImportResult(Struct, frozen=True):
    """Numbers of imported rows by table. ``status`` is the status of the organization when it was exported."""

    slug: str
    status: str
    rows: dict[str, int]


def import_organization(
    actor: Actor,
    stream: BinaryIO,
    passphrase: str,
    *,
    progress: Callable[[str, int], None] = lambda table, rows: None,
) -> ImportResult:
    """Import the organization under its id, with its clients, secrets and keys.

    Users sign in again, and clients continue with their refresh tokens. Its issuer is that of this installation. It may
    only replace its own tombstone. Raises UnreadableArchive for a file that was changed, truncated, made by another
    release, or has settings that are not allowed here. Raises Conflict if the id is taken or another import of it is
    running, or for an organization that has moved to another cell. Audit: ``organization.imported``, in its log and in
    root's.
    """
    actor.require("instance:write")
    records = ArchiveReader(stream, passphrase).sized_records()
    organization = read_organization(next(records, (None, 0))[0])
    organization_id = str(organization["id"])
    with leases.held(f"{organization_id} import", secrets.token_hex(8), _LEASE_SECONDS) as renew:
        if renew is None:
            raise Conflict("Another import of this organization is running.")
        _require_not_moved(organization_id)
        create_tombstone(organization)
        try:
            delete_leftovers(organization_id, renew)
            rows = _fill(organization_id, records, renew, progress)
            # The regular sealing skips old events, and ``audit verify`` reports an unsealed one as inserted.
            _give_key(organization, renew)
            _seal(actor, organization_id, renew)
            _activate(actor, organization, renew)
        except leases.LeaseLost as error:
            raise Conflict("Another import of this organization has taken over.") from error
        seal_all_events(actor, organization_id)
    return ImportResult(organization["slug"], organization["status"], rows)


def read_organization(record: Any) -> dict[str, Any]:
    organization = record.get("organization") if isinstance(record, dict) else None
    columns = {*COLUMNS, "data_key"}
    if not isinstance(organization, dict) or set(organization) > columns:
        raise UnreadableArchive("The file was made by a newer release and has unknown content.")
    if set(organization) != columns:
        raise UnreadableArchive(
            "The file was made by a release whose files this one cannot import. Import it with that release, upgrade, "
            "and export the organization again."
        )
    with reject_malformed():
        values = read_values(
            [organization[name] for name in COLUMNS], COLUMNS, Base.metadata.tables["organizations"]
        )
        is_whole = (
            is_routing_key(values["id"])
            # The slug becomes part of issuers and paths.
            and slug_problem(values["slug"]) is None
            and values["status"] in {ACTIVE, SUSPENDED}
            and isinstance(values["settings"], dict)
            and isinstance(values["version"], int)
            and len(bytes.fromhex(organization["data_key"])) == _KEY_BYTES
        )
    if not is_whole:
        raise UnreadableArchive("The file does not contain a valid organization.")
    return {
        **values,
        "settings": _validate_settings(values["settings"]),
        "data_key": organization["data_key"],
    }


def _validate_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Validate the settings of the file. Raises UnreadableArchive naming every invalid field."""
    bounds = current_limits()
    try:
        with reject_malformed():
            validated = validate_imported_settings(settings, bounds)
    except UnreadableArchive:
        raise
    except InvalidInput as refusal:
        errors = [replace(error, field=f"settings.{error.field}") for error in refusal.errors]
        words = "The settings in the file are not valid here: "
        listed = " ".join(f"{error.field}: {error.message}" for error in errors)
        raise UnreadableArchive(f"{words}{listed}", errors=errors, code=UnreadableArchive.code) from refusal
    if _PKCE not in overridden_paths(settings):
        put_at(validated, _PKCE, PKCE_REQUIRED)
    return validated


@read
def _require_not_moved(organization_id: str) -> None:
    """Raise Conflict for a tombstone of a move: another cell serves the organization, or may be about to be left."""
    row = db.session.execute(
        select(Organization.moved_to, Organization.moving_until).where(Organization.id == organization_id)
    ).first()
    if row is not None and row.moved_to is not None:
        raise Conflict(
            f"The organization has moved to {row.moved_to}. Move it back from there.", code="id_taken"
        )
    if row is not None and row.moving_until is not None:
        raise Conflict(
            "The organization is being moved here. Finish that move, or take it back, where it comes from.",
            code="id_taken",
        )


@transaction
def create_tombstone(organization: Mapping[str, Any]) -> None:
    """Create a tombstone with this id and slug unless it exists. Raises Conflict if an organization has either.

    Rows that an interrupted import or move leaves in it are deleted after a week.
    """
    purge_at = clock.now() + _LEFTOVER_RETENTION
    existing = db.session.execute(
        select(Organization.id, Organization.slug, Organization.status).where(
            or_(Organization.id == organization["id"], Organization.slug == organization["slug"])
        )
    ).all()
    if not existing:
        now = clock.now()
        row = {name: organization[name] for name in ("id", "slug", "name", "created_at", "created_by")}
        db.session.execute(
            insert(Organization).values(
                **row, is_root=False, status=PURGED, settings={}, updated_at=now, purge_at=purge_at
            )
        )
        return
    if [(row.id, row.slug, row.status) for row in existing] != [
        (organization["id"], organization["slug"], PURGED)
    ]:
        raise Conflict(
            f"The ID {organization['slug']} already exists here. An organization can be imported only where it "
            "does not exist or after it was purged.",
            code="id_taken",
        )
    same = (Organization.id == organization["id"]) & (Organization.status == PURGED)
    db.session.execute(update(Organization).where(same).values(purge_at=purge_at, data_key=None))


def delete_leftovers(organization_id: str, renew: Callable[[], None]) -> None:
    """Delete the rows that an interrupted import left. ``renew`` is called in the transaction of each batch."""
    for table in organization_tables():
        while _delete_batch(table, organization_id, renew):
            pass


@transaction
def _delete_batch(table: Table, organization_id: str, renew: Callable[[], None]) -> int:
    renew()
    return delete_by_key(table, table.c.organization_id == organization_id, _IMPORT_BATCH)


def _fill(
    organization_id: str,
    records: Iterator[tuple[Any, int]],
    renew: Callable[[], None],
    progress: Callable[[str, int], None],
) -> dict[str, int]:
    rows: Counter[str] = Counter()
    table: Table | None = None
    columns: list[str] = []
    waiting: list[dict[str, Any]] = []
    waiting_bytes = 0
    for record, size in records:
        if isinstance(record, list) and table is not None:
            waiting.append(read_row(record, columns, table, organization_id))
            waiting_bytes += size
            if len(waiting) < _IMPORT_BATCH and waiting_bytes < _IMPORT_BYTES:
                continue
        if waiting and table is not None:
            rows[table.name] += _insert(table, waiting, renew)
            waiting, waiting_bytes = [], 0
        if isinstance(record, dict):
            if table is not None:
                progress(table.name, rows[table.name])
            if "rows" in record:
                # Read to the end, because only the last frame proves that nothing was removed or added.
                if record["rows"] != dict(rows) or next(records, None) is not None:
                    raise UnreadableArchive("The number of rows in the file is wrong.")
                return dict(rows)
            table, columns = _table(record)
    raise UnreadableArchive("The file is truncated.")


def _table(record: Mapping[str, Any]) -> tuple[Table, list[str]]:
    with reject_malformed():
        name, columns = record.get("table"), record.get("columns")
        table = Base.metadata.tables.get(str(name)) if name in EXPORTED_TABLES else None
        is_known = table is not None and isinstance(columns, list) and set(columns) <= set(table.c.keys())
    if table is None or not isinstance(columns, list) or not is_known:
        raise UnreadableArchive("The file was made by a newer release and has unknown content.")
    require_columns(table, columns)
    return table, columns


def _insert(table: Table, rows: list[dict[str, Any]], renew: Callable[[], None]) -> int:
    try:
        _insert_batch(table, rows, renew)
    except (IntegrityError, DataError) as error:
        raise UnreadableArchive(f"The file has rows of {table.name} that do not fit together.") from error
    return len(rows)


@transaction
def _insert_batch(table: Table, rows: list[dict[str, Any]], renew: Callable[[], None]) -> None:
    renew()
    db.session.execute(insert(table), rows)


@transaction
def _give_key(organization: Mapping[str, Any], renew: Callable[[], None]) -> None:
    """Give the tombstone the key that seals its audit log.

    Raises Conflict if it is none any more, and UnreadableArchive if events could not be added to its log.
    """
    renew()
    require_sound_chain(organization["id"])
    data_key = keyring.wrap_data_key(organization["id"], bytes.fromhex(organization["data_key"]))
    changed = count_changed(
        update(Organization)
        .where(Organization.id == organization["id"], Organization.status == PURGED, _is_for(None))
        .values(data_key=data_key)
    )
    if changed != 1:
        raise _changed_meanwhile()
    keyring.clear_cached_keys(organization["id"])


def _seal(actor: Actor, organization_id: str, renew: Callable[[], None]) -> None:
    try:
        seal_all_events(actor, organization_id, renew)
    except NotFound as error:
        # Another import has taken the key from the tombstone again.
        raise leases.LeaseLost from error


@transaction
def _activate(actor: Actor, organization: Mapping[str, Any], renew: Callable[[], None]) -> None:
    """Activate the organization, unless another import has begun to replace its rows meanwhile."""
    renew()
    activate(actor, organization)


@transaction
def activate(actor: Actor, organization: Mapping[str, Any], move: datetime | None = None) -> None:
    """Activate the organization: wrap its key with the master key of this installation, and invalidate caches.

    ``move`` names the move that brings it, which its tombstone was prepared for. Raises Conflict if it was not, or was
    prepared for a move although this is an import, and UnreadableArchive if events could not be added to its log.
    """
    organization_id = organization["id"]
    require_sound_chain(organization_id)
    now = clock.now()
    values = {name: organization[name] for name in COLUMNS if name not in {"id", "slug", "version"}}
    changed = count_changed(
        update(Organization)
        .where(Organization.id == organization_id, Organization.status == PURGED, _is_for(move))
        .values(
            **values,
            version=Organization.version + organization["version"] + 1,
            data_key=keyring.wrap_data_key(organization_id, bytes.fromhex(organization["data_key"])),
            updated_at=now,
            deleted_at=None,
            purge_at=None,
            moving_until=None,
            moved_to=None,
        )
    )
    if changed != 1:
        raise _changed_meanwhile()
    keyring.clear_cached_keys(organization_id)
    cache_invalidation.invalidate(organization_id)
    after = {"name": organization["name"]}
    record_in_root_too(actor, organization_id, organization["slug"], "organization.imported", after)


def _changed_meanwhile() -> Conflict:
    return Conflict("The organization was changed by another request.")


def _is_for(move: datetime | None) -> ColumnElement[bool]:
    """Return the condition that a tombstone was prepared for the move and not withdrawn, or for none without one."""
    if move is None:
        return Organization.moving_until.is_(None) & Organization.moved_to.is_(None)
    return (Organization.moving_until == move) & Organization.deleted_at.is_(None)


def record_in_root_too(
    actor: Actor, organization_id: str, slug: str, action: str, after: Mapping[str, Any] | None = None
) -> None:
    """Record an event of the organization in its own log, as an act from root, and in root's."""
    root = Actor.system(get_root_organization().id, actor.label) if actor.kind == "system" else actor
    record_organization_event(
        root.acting_in(organization_id, root.permissions), slug, action, {}, after or {}
    )
