"""Imports of people: the file in sealed parts, how far its rows are brought in, and those that were refused."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Index, String
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import (
    Base,
    Digest,
    Identifier,
    Json,
    Sealed,
    Tenant,
    UtcDateTime,
    Uuid,
    owned_by_organization,
    within_organization,
)
from app.rules.identifiers import ROUTING_KEY_LENGTH

UPLOADING, CHECKING, CHECKED, RUNNING = "uploading", "checking", "checked", "running"
DONE, CANCELLED, FAILED = "done", "cancelled", "failed"
UNDER_WAY = (CHECKING, RUNNING)
UNFINISHED = (UPLOADING, CHECKING, CHECKED, RUNNING)


class UserImport(Tenant, Base):
    """One file of people. ``position`` and the counts advance in the transaction that brings a part's people in."""

    __tablename__ = "user_imports"
    __table_args__ = (
        Index("ix_user_imports_due", "status", "worked_at"),
        owned_by_organization("user_imports"),
        Base.__table_args__,
    )

    name: Mapped[str] = mapped_column(String(200), comment="of the file")
    format: Mapped[str] = mapped_column(Identifier(8), comment="csv, json, ndjson")
    digest: Mapped[bytes] = mapped_column(Digest, comment="of the whole file")
    on_existing: Mapped[str] = mapped_column(Identifier(8), comment="skip, update")
    status: Mapped[str] = mapped_column(
        Identifier(16), comment="uploading, checking, checked, running, done, cancelled, failed"
    )
    is_foreground: Mapped[bool] = mapped_column(comment="the command line works on it, no server does")
    importer: Mapped[dict[str, Any]] = mapped_column(Json, comment="who asked for it, and what they might do")
    total: Mapped[int] = mapped_column(comment="rows of the file")
    parts: Mapped[int]
    position: Mapped[int] = mapped_column(comment="parts that are done")
    created: Mapped[int]
    updated: Mapped[int]
    skipped: Mapped[int]
    refused: Mapped[int]
    failure: Mapped[str | None] = mapped_column(String(300))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    worked_at: Mapped[datetime] = mapped_column(UtcDateTime)
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)


class UserImportPart(Base):
    """Some rows of the file, sealed: they hold personal data and hashes. Gone once they are brought in."""

    __tablename__ = "user_import_parts"
    __table_args__ = (
        owned_by_organization("user_import_parts"),
        within_organization("user_import_parts", "import_id", "user_imports"),
        Base.__table_args__,
    )

    organization_id: Mapped[str] = mapped_column(Identifier(ROUTING_KEY_LENGTH), primary_key=True)
    import_id: Mapped[UUID] = mapped_column(Uuid, primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    sealed_rows: Mapped[bytes] = mapped_column(Sealed)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)


class UserImportRefusal(Base):
    """A row that was not brought in, with the reasons, so that it can be mended and sent again."""

    __tablename__ = "user_import_refusals"
    __table_args__ = (
        owned_by_organization("user_import_refusals"),
        within_organization("user_import_refusals", "import_id", "user_imports"),
        Base.__table_args__,
    )

    organization_id: Mapped[str] = mapped_column(Identifier(ROUTING_KEY_LENGTH), primary_key=True)
    import_id: Mapped[UUID] = mapped_column(Uuid, primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, comment="of the row in the file")
    sealed_row: Mapped[bytes] = mapped_column(Sealed, comment="the row and its errors")
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
