"""Evidence: what happened, who did it, what it was before and after. Rows are inserted and never updated."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Index, String
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import Base, Identifier, Json, Tenant, UtcDateTime, owned_by_organization


class AuditEvent(Tenant, Base):
    """One event (public id ``evt_…``)."""

    __tablename__ = "audit_events"
    __table_args__ = (
        Index("ix_audit_events_target", "organization_id", "target_id", "id"),
        Index("ix_audit_events_actor", "organization_id", "actor_id", "id"),
        Index("ix_audit_events_action", "organization_id", "action", "id"),
        owned_by_organization("audit_events"),
        Base.__table_args__,
    )

    at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    action: Mapped[str] = mapped_column(Identifier(64), comment="past tense: client.registered")
    actor_kind: Mapped[str] = mapped_column(Identifier(16))
    actor_id: Mapped[str | None] = mapped_column(Identifier(64), comment="public id")
    actor_label: Mapped[str] = mapped_column(String(200), comment="e-mail or client name at the time")
    actor_organization: Mapped[str] = mapped_column(
        Identifier(8), comment="differs from organization_id when root acts"
    )
    target_type: Mapped[str | None] = mapped_column(Identifier(32))
    target_id: Mapped[str | None] = mapped_column(Identifier(64))
    before: Mapped[dict[str, Any] | None] = mapped_column(Json)
    after: Mapped[dict[str, Any] | None] = mapped_column(Json)
    address: Mapped[str | None] = mapped_column(Identifier(64))
    request_id: Mapped[str | None] = mapped_column(Identifier(64))
