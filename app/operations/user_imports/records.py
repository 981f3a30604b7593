"""Imports as they are shown: how far each one is, and the rows that it refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import select

from app.extensions import db
from app.models.user_import import UNDER_WAY, UPLOADING, UserImport, UserImportRefusal
from app.operations import keyring
from app.operations.directory import organization_by_id
from app.operations.pages import DEFAULT_LIMIT, MOST, CursorKey, Page, in_order
from app.operations.transaction import read
from app.rules.actor import Actor
from app.rules.errors import FieldError, InvalidInput, NotFound
from app.rules.identifiers import encode_uuid, parse_public_id, public_id


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
class RefusedRow:
    """A row of the file that was not brought in, as it stood there, and why."""

    number: int
    fields: Mapping[str, Any]
    errors: tuple[FieldError, ...]


@read
def get_import(actor: Actor, import_id: str) -> ImportRecord:
    """The import ``imp_…``. Raises Forbidden, NotFound."""
    actor.require("users:read")
    return record_of(row_of(actor, import_id))


@read
def list_imports(
    actor: Actor, *, limit: int = DEFAULT_LIMIT, after: CursorKey | None = None
) -> Page[ImportRecord]:
    """A page of the organization's imports, the newest first. Raises Forbidden."""
    actor.require("users:read")
    limit = min(limit, MOST)
    statement = select(UserImport).where(
        UserImport.organization_id == actor.organization_id, UserImport.status != UPLOADING
    )
    rows = db.session.scalars(in_order(statement, (UserImport.id,), after).limit(limit + 1)).all()
    items = tuple(record_of(row) for row in rows[:limit])
    return Page(items, (encode_uuid(rows[limit - 1].id),) if len(rows) > limit else None)


@read
def list_refused_rows(
    actor: Actor, import_id: str, *, limit: int = DEFAULT_LIMIT, after: CursorKey | None = None
) -> Page[RefusedRow]:
    """A page of the rows that the import refused, in the order of the file; kept for a week.

    Who may write users alone sees them: a row holds what was sent, a password's hash too. Raises Forbidden, NotFound.
    """
    actor.require("users:write")
    row = row_of(actor, import_id)
    if after is not None and (len(after) != 1 or not after[0].isascii() or not after[0].isdigit()):
        raise InvalidInput("This cursor belongs to another list.", field="cursor", code="invalid_cursor")
    begin = min(int(after[0][:12]), 2**31 - 1) if after else 0
    limit = min(limit, MOST)
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


def row_of(actor: Actor, import_id: str) -> UserImport:
    """The row, after the permission was asked. Raises NotFound, for another organization's too."""
    row_id = parse_public_id("imp", import_id)
    row = db.session.get(UserImport, (actor.organization_id, row_id)) if row_id is not None else None
    if row is None or row.status == UPLOADING:
        raise NotFound("There is no such import.")
    return row


def record_of(row: UserImport) -> ImportRecord:
    """The row, to be shown."""
    return ImportRecord(
        organization_slug=organization_by_id(row.organization_id, fresh=False).slug,
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


def place_of(kind: str, import_id: UUID, number: int) -> str:
    """Where sealed rows belong: moved elsewhere they do not open."""
    return f"user-import|{kind}|{import_id}|{number}"


def _refused_row(refusal: UserImportRefusal) -> RefusedRow:
    place = place_of("refusal", refusal.import_id, refusal.number)
    kept = json.loads(keyring.unseal(refusal.organization_id, refusal.sealed_row, place))
    return RefusedRow(refusal.number, kept["fields"], tuple(FieldError(*error) for error in kept["errors"]))
