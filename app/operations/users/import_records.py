"""Imports as they are shown: how far each one is, and the rows that it refused."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import delete, select, update

from app.extensions import db
from app.models.user import (
    CANCELLED,
    CHECKED,
    FAILED,
    UNDER_WAY,
    UPLOADING,
    UserImport,
    UserImportPart,
    UserImportRefusal,
)
from app.operations.directory.lookups import get_organization_by_id
from app.operations.store import audit, clock, keyring
from app.operations.store.pagination import DEFAULT_LIMIT, MAX_LIMIT, CursorKey, Page, paginate
from app.operations.store.transactions import count_changed, read, transaction
from app.rules.actor import Actor
from app.rules.errors import Conflict, FieldError, InvalidInput, NotFound
from app.rules.fields import MOST_UNKNOWN
from app.rules.identifiers import encode_uuid, parse_public_id, public_id
from app.rules.users.user_import import CSV_FIELDS, REPORT_FIELDS, as_cell, as_cells


@dataclass(frozen=True, slots=True)
class ImportRecord:
    """One import. Of a dry run the counts say what would happen."""

    organization_slug: str
    id: UUID
    name: str
    format: str
    on_existing: str
    status: str
    total: int
    parts: int
    position: int
    created: int
    updated: int
    skipped: int
    refused: int
    failure: str | None
    created_at: datetime
    created_by: str
    ended_at: datetime | None

    @property
    def public_id(self) -> str:
        """``imp_…``."""
        return public_id("imp", self.id)

    @property
    def is_under_way(self) -> bool:
        """Whether its rows are being looked at or brought in."""
        return self.status in UNDER_WAY

    @property
    def done(self) -> int:
        """How many rows are done."""
        return self.created + self.updated + self.skipped + self.refused

    @property
    def percent(self) -> int:
        """Of the rows, those that are done."""
        return self.done * 100 // self.total if self.total else 0


@dataclass(frozen=True, slots=True)
class RefusedRowRecord:
    """A row of the file that was not brought in, as it stood there, and why."""

    number: int
    fields: Mapping[str, Any]
    errors: tuple[FieldError, ...]


@read
def get_import(actor: Actor, import_id: str) -> ImportRecord:
    """The import ``imp_…``. Raises Forbidden, NotFound."""
    actor.require("users:read")
    return import_record(get_import_row(actor, import_id))


@read
def list_imports(
    actor: Actor, *, limit: int = DEFAULT_LIMIT, after: CursorKey | None = None
) -> Page[ImportRecord]:
    """A page of the organization's imports, the newest first. Raises Forbidden."""
    actor.require("users:read")
    limit = min(limit, MAX_LIMIT)
    statement = select(UserImport).where(
        UserImport.organization_id == actor.organization_id, UserImport.status != UPLOADING
    )
    rows = db.session.scalars(paginate(statement, (UserImport.id,), after).limit(limit + 1)).all()
    items = tuple(import_record(row) for row in rows[:limit])
    return Page(items, (encode_uuid(rows[limit - 1].id),) if len(rows) > limit else None)


@read
def list_refused_rows(
    actor: Actor, import_id: str, *, limit: int = DEFAULT_LIMIT, after: CursorKey | None = None
) -> Page[RefusedRowRecord]:
    """A page of the rows that the import refused, in the order of the file; kept for a week.

    Who may write users alone sees them: a row holds what was sent, a password's hash too. Raises Forbidden, NotFound.
    """
    actor.require("users:write")
    row = get_import_row(actor, import_id)
    if after is not None and (len(after) != 1 or not after[0].isascii() or not after[0].isdigit()):
        raise InvalidInput("This cursor belongs to another list.", field="cursor", code="invalid_cursor")
    begin = min(int(after[0][:12]), 2**31 - 1) if after else 0
    limit = min(limit, MAX_LIMIT)
    rows = db.session.scalars(
        select(UserImportRefusal)
        .where(
            UserImportRefusal.organization_id == row.organization_id,
            UserImportRefusal.import_id == row.id,
            UserImportRefusal.number > begin,
        )
        .order_by(UserImportRefusal.number)
        .limit(limit + 1)
    ).all()
    items = tuple(_refused_row(refusal) for refusal in rows[:limit])
    return Page(items, (str(items[-1].number),) if len(rows) > limit else None)


def get_import_row(actor: Actor, import_id: str) -> UserImport:
    """The row, after the permission was asked. Raises NotFound, for another organization's too."""
    row_id = parse_public_id("imp", import_id)
    row = db.session.get(UserImport, (actor.organization_id, row_id)) if row_id is not None else None
    if row is None or row.status == UPLOADING:
        raise NotFound("There is no such import.")
    return row


def import_record(row: UserImport) -> ImportRecord:
    """The row, to be shown."""
    return ImportRecord(
        organization_slug=get_organization_by_id(row.organization_id, fresh=False).slug,
        id=row.id,
        name=row.name,
        format=row.format,
        on_existing=row.on_existing,
        status=row.status,
        total=row.total,
        parts=row.parts,
        position=row.position,
        created=row.created,
        updated=row.updated,
        skipped=row.skipped,
        refused=row.refused,
        failure=row.failure,
        created_at=row.created_at,
        created_by=str(row.importer["label"]),
        ended_at=row.ended_at,
    )


def seal_context(kind: str, import_id: UUID, number: int) -> str:
    """Where sealed rows belong: moved elsewhere they do not open."""
    return f"user-import|{kind}|{import_id}|{number}"


def _refused_row(refusal: UserImportRefusal) -> RefusedRowRecord:
    place = seal_context("refusal", refusal.import_id, refusal.number)
    kept = json.loads(keyring.unseal(refusal.organization_id, refusal.sealed_row, place))
    return RefusedRowRecord(
        refusal.number, kept["fields"], tuple(FieldError(*error) for error in kept["errors"])
    )


def refusal_report(actor: Actor, import_id: str) -> Iterator[str]:
    """Pieces of the report: its columns are those that some refused row fills, ``row`` and ``errors`` first.

    Of those that no import knows, the first ones that it meets. Raises Forbidden, NotFound, before the first piece.
    """
    filled: set[str] = set()
    unknown: dict[str, None] = {}
    for row in _all(actor, import_id):
        for name in as_cells(row.fields):
            if name in CSV_FIELDS:
                filled.add(name)
            elif name not in REPORT_FIELDS and len(unknown) < MOST_UNKNOWN:
                unknown[name] = None
    known = [name for name in CSV_FIELDS if name in filled or name == "email"]
    return _pieces(actor, import_id, [*REPORT_FIELDS, *known, *unknown])


def _pieces(actor: Actor, import_id: str, columns: Sequence[str]) -> Iterator[str]:
    text = io.StringIO()
    # A name in a JSON file is its author's, and stands in a cell like every value.
    writer = csv.DictWriter(text, columns, restval="", extrasaction="ignore")
    writer.writerow({name: as_cell(name) for name in columns})
    for row in _all(actor, import_id):
        writer.writerow(as_cells(row.fields) | as_cells({"row": str(row.number), "errors": _words(row)}))
        if text.tell() > 1 << 16:
            yield text.getvalue()
            text.seek(0)
            text.truncate()
    yield text.getvalue()


def _words(row: RefusedRowRecord) -> str:
    return " ".join(
        f"{error.field}: {error.message}" if error.field else error.message for error in row.errors
    )


def _all(actor: Actor, import_id: str) -> Iterator[RefusedRowRecord]:
    after: CursorKey | None = None
    while True:
        page = list_refused_rows(actor, import_id, limit=MAX_LIMIT, after=after)
        yield from page.items
        after = page.next_cursor_key
        if after is None:
            return


_AT_ONCE = 50
_FROM: tuple[str, ...] = (*UNDER_WAY, CHECKED)


def cancel_import(actor: Actor, import_id: str) -> ImportRecord:
    """Nothing more is brought in; who was brought in stays. What was uploaded is gone.

    Raises Forbidden, NotFound, Conflict when it has ended. Audit: ``user_import.cancelled``.
    """
    record = _cancel(actor, import_id)
    remove_parts(actor.organization_id, record.id)
    return record


def discard_upload(actor: Actor, import_id: UUID) -> None:
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
    row = get_import_row(actor, import_id)
    if not _end(row.organization_id, row.id, CANCELLED, _FROM):
        raise Conflict("This import has ended already.", code="import_ended")
    counts = {"created": row.created, "updated": row.updated, "refused": row.refused}
    target = public_id("imp", row.id)
    audit.record(actor, "user_import.cancelled", target_type="user_import", target_id=target, after=counts)
    db.session.expire_all()
    return import_record(get_import_row(actor, import_id))


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
