"""Requests of members that administrators allow a client."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import Index, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import (
    Base,
    Identifier,
    Tenant,
    UtcDateTime,
    Uuid,
    owned_by_organization,
    within_organization,
)


class ClientRequest(Tenant, Base):
    """One member's request for one client (public id ``crq_…``); of each pair one is open at a time."""

    __tablename__ = "client_requests"
    __table_args__ = (
        # NULLs differ from one another: those that are decided stand beside each other.
        UniqueConstraint("organization_id", "client_id", "user_id", "is_open"),
        Index("ix_client_requests_status", "organization_id", "status", "id"),
        Index("ix_client_requests_user", "organization_id", "user_id"),
        owned_by_organization("client_requests"),
        within_organization("client_requests", "client_id", "clients"),
        within_organization("client_requests", "user_id", "users"),
        Base.__table_args__,
    )

    client_id: Mapped[UUID] = mapped_column(Uuid)
    user_id: Mapped[UUID] = mapped_column(Uuid, comment="the member who asks")
    is_open: Mapped[bool | None] = mapped_column(comment="true while nobody has decided, NULL afterwards")
    status: Mapped[str] = mapped_column(Identifier(16), comment="open, approved, declined")
    scope: Mapped[str] = mapped_column(String(4000), comment="what the client had asked for, space-separated")
    reason: Mapped[str] = mapped_column(String(300), comment="the member's words")
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    decided_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    decided_by: Mapped[str | None] = mapped_column(String(200))
    message: Mapped[str | None] = mapped_column(String(300), comment="the decider's words for the member")
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
