"""User imports as tests start them, and their results."""

from __future__ import annotations

import io
from typing import Any

from sqlalchemy import func, select

from app.extensions import db
from app.models.audit import AuditEvent
from app.models.user import User
from app.operations.store.rows import PageRequest
from app.operations.users import import_records, import_runner, import_uploads
from app.operations.users.import_records import ImportRecord
from app.rules.actor import Actor

LONG_SURNAME = " of the orchards beyond the river and the mills and the old bridge"
BCRYPT = "$2b$08$abcdefghijklmnopqrstuu" + "a" * 31


def admin(make: Any, organization: Any, *permissions: str) -> Actor:
    """Return an administrator of the organization; permissions are checked for each chunk."""
    return make.actor(organization, *permissions, user=make.user(organization, role="admin"))


def imported() -> int:
    """Return how many users of the import exist."""
    return sum(email.endswith("@users.example") for email in db.session.scalars(select(User.email)))


def begin(actor: Actor, text: str | bytes, *, dry: bool = False, **options: Any) -> ImportRecord:
    """Start an import of the text."""
    stream = io.BytesIO(text.encode() if isinstance(text, str) else text)
    upload = import_uploads.receive_upload(actor, stream.read, **({"file_format": "csv"} | options))
    return import_uploads.confirm_upload(actor, upload, is_dry_run=dry)


def bring_in(actor: Actor, text: str | bytes, **options: Any) -> ImportRecord:
    """Import the text completely."""
    return import_runner.run_import(actor, begin(actor, text, **options).public_id)


def counts(record: ImportRecord) -> tuple[str, int, int, int, int]:
    return record.status, record.created, record.updated, record.skipped, record.refused


def user_rows(count: int, *, surname: str = "") -> str:
    """A file of so many users; a long surname makes a large file of few."""
    rows = (f"p{number}@users.example,Person {number}{surname}\n" for number in range(count))
    return "email,name\n" + "".join(rows)


def stored(model: Any) -> int:
    return db.session.scalar(select(func.count()).select_from(model)) or 0


def reasons(actor: Actor, record: ImportRecord) -> dict[int, list[tuple[str, str]]]:
    page = import_records.list_refused_rows(actor, record.public_id, PageRequest(100))
    return {row.number: [(error.field, error.code) for error in row.errors] for row in page.items}


def events(organization: Any, action: str) -> list[AuditEvent]:
    return list(
        db.session.scalars(
            select(AuditEvent).where(
                AuditEvent.organization_id == organization.id, AuditEvent.action == action
            )
        )
    )
