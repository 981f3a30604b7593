"""Requests of clients that were refused, for the people who make the clients. Nothing secret is in them."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Index, String
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import (
    Base,
    Identifier,
    Json,
    Tenant,
    UtcDateTime,
    Uuid,
    owned_by_organization,
    within_organization,
)


class FailedRequest(Tenant, Base):
    """One refused request of a known client (public id ``flr_…``)."""

    __tablename__ = "failed_requests"
    __table_args__ = (
        Index("ix_failed_requests_client", "organization_id", "client_id", "cause", "id"),
        Index("ix_failed_requests_cause", "organization_id", "cause", "id"),
        Index("ix_failed_requests_request", "organization_id", "request_id"),
        owned_by_organization("failed_requests"),
        within_organization("failed_requests", "client_id", "clients"),
        Base.__table_args__,
    )

    client_id: Mapped[UUID] = mapped_column(Uuid)
    at: Mapped[datetime] = mapped_column(UtcDateTime)
    request_id: Mapped[str] = mapped_column(Identifier(64), comment="req_…, as the error page shows it")
    endpoint: Mapped[str] = mapped_column(Identifier(32), comment="authorize, token, introspect …")
    method: Mapped[str] = mapped_column(Identifier(8))
    status: Mapped[int] = mapped_column()
    error: Mapped[str] = mapped_column(Identifier(64), comment="the code that the client was told")
    description: Mapped[str] = mapped_column(String(500), comment="the words that it was told")
    cause: Mapped[str] = mapped_column(Identifier(48), comment="a code of rules/evidence/failure_causes")
    received: Mapped[str | None] = mapped_column(String(2048))
    expected: Mapped[list[str]] = mapped_column(Json, comment="any one of them would have been right")
    parameters: Mapped[dict[str, Any]] = mapped_column(Json, comment="of the request, secrets removed")
    address: Mapped[str | None] = mapped_column(Identifier(64))
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
