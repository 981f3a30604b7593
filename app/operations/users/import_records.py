"""Showing imports and their rejected rows, and cancelling and deleting imports."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import delete, select, update

from app.extensions import db
from app.models.base import has_key
from app.models.user import (
    CANCELLED,
    CHECKED,
    FAILED,
    IN_PROGRESS,
    UPLOADING,
    UserImport,
    UserImportPart,
    UserImportRefusal,
)
from app.operations.directory.lookups import get_organization_by_id
from app.operations.store import audit, clock, keyring
from app.operations.store.rows import Page, PageRequest, get_row, iterate_pages, make_record, read_page
from app.operations.store.transactions import count_changed, read, transaction, transaction_part
from app.rules.actor import Actor
from app.rules.errors import Conflict, FieldError
from app.rules.fields import MAX_UNKNOWN
from app.rules.identifiers import HasPublicId, parse_public_id, public_id
from app.rules.languages.translation import TranslatableString
from app.rules.users.import_files import REPORT_FIELDS, as_cell, as_cells
from app.rules.users.user_import import CSV_FIELDS

SENT_BY = "sent_by"
"""In the document of the actor who runs an import: who sent the file, if that was somebody else."""
_DELETE_BATCH_SIZE = 50
_CANCELLABLE: tuple[str, ...] = (*IN_PROGRESS, CHECKED)


class ImportRecord(HasPublicId, Struct, frozen=True):
    """An import. For a dry run the counts say what would happen."""

    id_prefix = "imp"
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
    def is_under_way(self) -> bool:
        """Return whether its rows are being checked or imported."""
        return self.status in IN_PROGRESS

    @property
    def done(self) -> int:
        """Return the number of processed rows."""
        return self.created + self.updated + self.skipped + self.refused

    @property
    def percent(self) -> int:
        """Return the percentage of processed rows."""
        return self.done * 100 // self.total if self.total else 0


class RefusedRowRecord(Struct, frozen=True):
    """A row of the file that was not imported, with its original fields and the errors."""

    number: int
    fields: Mapping[str, Any]
    errors: tuple[FieldError, ...]


@read
def get_import(actor: Actor, import_id: str) -> ImportRecord:
    """Return the import ``imp_…``. Raises Forbidden, NotFound."""
    actor.require("users:read")
    return import_record(get_import_row(actor, import_id))


@read
def list_imports(actor: Actor, page_request: PageRequest = PageRequest()) -> Page[ImportRecord]:
    """Return a page of the organization's imports, newest first. Raises Forbidden."""
    actor.require("users:read")
    statement = select(UserImport).where(
        UserImport.organization_id == actor.organization_id, UserImport.status != UPLOADING
    )
    return read_page(statement, (UserImport.id,), page_request).map(import_record)


@read
def list_refused_rows(
    actor: Actor, import_id: str, page_request: PageRequest = PageRequest()
) -> Page[RefusedRowRecord]:
    """Return a page of the import's rejected rows in the order of the file. They are kept for a week.

    Requires permission to write users, because a row contains what was uploaded, including password hashes.
    Raises Forbidden, NotFound.
    """
    actor.require("users:write")
    row = get_import_row(actor, import_id)
    statement = select(UserImportRefusal).where(
        UserImportRefusal.organization_id == row.organization_id, UserImportRefusal.import_id == row.id
    )
    return read_page(statement, (UserImportRefusal.number,), page_request, descending=False).map(_refused_row)


def get_import_row(actor: Actor, import_id: str) -> UserImport:
    """Return the row without checking permissions. Raises NotFound."""
    key = has_key(UserImport, actor.organization_id, parse_public_id("imp", import_id))
    statement = select(UserImport).where(key, UserImport.status != UPLOADING)
    row: UserImport = get_row(statement, "There is no such import.")
    return row


def import_record(row: UserImport) -> ImportRecord:
    """Return the record of a row."""
    return make_record(
        ImportRecord,
        row,
        organization_slug=get_organization_by_id(row.organization_id, fresh=False).slug,
        created_by=sender_of(row),
    )


def sender_of(row: UserImport) -> str:
    """Return the email or name of the user or client who sent the file; another may have started its import."""
    return str(row.importer.get(SENT_BY, row.importer["label"]))


def seal_context(kind: str, import_id: UUID, number: int) -> str:
    """Return the context that sealed rows are bound to. They cannot be opened in another one."""
    return f"user-import|{kind}|{import_id}|{number}"


def refusal_report(actor: Actor, import_id: str) -> Iterator[str]:
    """Return a CSV report of the rejected rows in pieces.

    Its columns are ``row``, ``errors``, those that any rejected row uses, and the first unknown ones up to a
    limit. Raises Forbidden and NotFound before the first piece.
    """
    filled: set[str] = set()
    unknown: dict[str, None] = {}
    for row in _all_refused_rows(actor, import_id):
        for name in as_cells(row.fields):
            if name in CSV_FIELDS:
                filled.add(name)
            elif name not in REPORT_FIELDS and len(unknown) < MAX_UNKNOWN:
                unknown[name] = None
    known = [name for name in CSV_FIELDS if name in filled or name == "email"]
    return _report_pieces(actor, import_id, [*REPORT_FIELDS, *known, *unknown])


def cancel_import(actor: Actor, import_id: str) -> ImportRecord:
    """Stop an import and delete the uploaded rows. Users already imported stay.

    Raises Forbidden, NotFound, Conflict when it has ended. Audit: ``user_import.cancelled``.
    """
    record = _cancel(actor, import_id)
    remove_parts(actor.organization_id, record.id)
    return record


def discard_upload(actor: Actor, import_id: UUID) -> None:
    """Delete an upload that was not confirmed. One that became an import stays as it is."""
    actor.require("users:write")
    if _end(actor.organization_id, import_id, CANCELLED, (UPLOADING,)):
        remove_parts(actor.organization_id, import_id)
        _delete_import(actor.organization_id, import_id)


@transaction
def fail_import(actor: Actor, import_id: UUID, reason: str) -> None:
    """Mark the import as failed with the reason.

    The caller then calls ``remove_parts``. Audit: ``user_import.failed``.
    """
    organization_id = actor.organization_id
    if _end(organization_id, import_id, FAILED, IN_PROGRESS, failure=reason[:300]):
        record_import_event(actor, "user_import.failed", import_id, {"reason": reason})


def record_import_event(actor: Actor, action: str, import_id: UUID, after: Mapping[str, Any]) -> None:
    """Record an audit event of an import."""
    audit.record(actor, action, "user_import", public_id("imp", import_id), after=after)


def remove_parts(organization_id: str, import_id: UUID) -> None:
    """Delete the uploaded rows in batches."""
    while _delete_parts_batch(organization_id, import_id):
        pass


@transaction
def remove_refusals(organization_id: str, import_id: UUID) -> None:
    """Delete the rejected rows of a dry run when its import starts."""
    count_changed(
        delete(UserImportRefusal).where(
            UserImportRefusal.organization_id == organization_id, UserImportRefusal.import_id == import_id
        )
    )


def as_stored_message(message: str) -> tuple[str, dict[str, Any]] | None:
    """Return the message id and the parameters of an error, or None if its text is all there is to translate."""
    if not isinstance(message, TranslatableString):
        return None
    params = {name: as_stored_message(value) or value for name, value in message.params.items()}
    is_plain = all(type(value) in {str, int, tuple} for value in params.values())
    return (message.msgid, params) if is_plain else None


def _stored_message(msgid: str, params: Mapping[str, Any]) -> str:
    values = {
        name: _stored_message(*value) if isinstance(value, list) else value for name, value in params.items()
    }
    return TranslatableString(msgid, values)


def _refused_row(refusal: UserImportRefusal) -> RefusedRowRecord:
    context = seal_context("refusal", refusal.import_id, refusal.number)
    stored = json.loads(keyring.unseal(refusal.organization_id, refusal.sealed_row, context))
    errors = stored["errors"]
    # The release before this one stores only the English text.
    messages = stored.get("messages") or [None] * len(errors)
    return RefusedRowRecord(
        refusal.number,
        stored["fields"],
        tuple(
            FieldError(field, code, text if message is None else _stored_message(*message))
            for (field, code, text), message in zip(errors, messages, strict=True)
        ),
    )


def _report_pieces(actor: Actor, import_id: str, columns: Sequence[str]) -> Iterator[str]:
    text = io.StringIO()
    # Field names of a JSON file are untrusted and are escaped like values.
    writer = csv.DictWriter(text, columns, restval="", extrasaction="ignore")
    writer.writerow({name: as_cell(name) for name in columns})
    for row in _all_refused_rows(actor, import_id):
        writer.writerow(
            as_cells(row.fields) | as_cells({"row": str(row.number), "errors": _format_errors(row)})
        )
        if text.tell() > 1 << 16:
            yield text.getvalue()
            text.seek(0)
            text.truncate()
    yield text.getvalue()


def _format_errors(row: RefusedRowRecord) -> str:
    return " ".join(
        f"{error.field}: {error.message}" if error.field else error.message for error in row.errors
    )


def _all_refused_rows(actor: Actor, import_id: str) -> Iterator[RefusedRowRecord]:
    return iterate_pages(list_refused_rows, actor, import_id)


@transaction
def _cancel(actor: Actor, import_id: str) -> ImportRecord:
    actor.require("users:write")
    row = get_import_row(actor, import_id)
    if not _end(row.organization_id, row.id, CANCELLED, _CANCELLABLE):
        raise Conflict("This import has already ended.", code="import_ended")
    counts = {"created": row.created, "updated": row.updated, "refused": row.refused}
    record_import_event(actor, "user_import.cancelled", row.id, counts)
    db.session.expire_all()
    return import_record(get_import_row(actor, import_id))


@transaction_part
def _end(
    organization_id: str, import_id: UUID, status: str, before: tuple[str, ...], failure: str | None = None
) -> bool:
    now = clock.now()
    changed = count_changed(
        update(UserImport)
        .where(has_key(UserImport, organization_id, import_id), UserImport.status.in_(before))
        .values(status=status, ended_at=now, failure=failure)
    )
    return changed == 1


@transaction
def _delete_import(organization_id: str, import_id: UUID) -> None:
    count_changed(delete(UserImport).where(has_key(UserImport, organization_id, import_id)))


@transaction
def _delete_parts_batch(organization_id: str, import_id: UUID) -> int:
    conditions = (UserImportPart.organization_id == organization_id, UserImportPart.import_id == import_id)
    numbers = db.session.scalars(
        select(UserImportPart.number).where(*conditions).limit(_DELETE_BATCH_SIZE)
    ).all()
    if not numbers:
        return 0
    return count_changed(delete(UserImportPart).where(*conditions, UserImportPart.number.in_(numbers)))
