"""Receipts of wider revocations: who ended what, from which moment on, and how much it was."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Index, String
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import Base, Identifier, Json, Tenant, UtcDateTime, owned_by_organization


class RevocationReceipt(Tenant, Base):
    """One wider revocation (public id ``rev_…``); the moments it set stand where tokens are asked for."""

    __tablename__ = "revocation_receipts"
    __table_args__ = (
        Index("ix_revocation_receipts_unsettled", "settled_at", "created_at"),
        owned_by_organization("revocation_receipts"),
        Base.__table_args__,
    )

    kind: Mapped[str] = mapped_column(
        Identifier(16), comment="grant, client, credential, user, session, organization"
    )
    subject: Mapped[str] = mapped_column(
        Identifier(64), comment="public id of what was selected, which may be gone since"
    )
    issued_before: Mapped[datetime] = mapped_column(UtcDateTime, comment="what was issued before is dead")
    sessions: Mapped[bool] = mapped_column(comment="sign-ins ended, too")
    reason: Mapped[str | None] = mapped_column(String(500))
    counts: Mapped[dict[str, Any]] = mapped_column(Json, comment="what was alive, each count cut off")
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    created_by: Mapped[str | None] = mapped_column(String(200))
    created_by_id: Mapped[str | None] = mapped_column(Identifier(64), comment="public id of who asked")
    settled_at: Mapped[datetime | None] = mapped_column(
        UtcDateTime, comment="when the rows of sign-ins that it ended were cleared and clients were told"
    )
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True, comment="as long as audit events")
