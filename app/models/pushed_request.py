"""Authorization requests that clients pushed before they sent anybody here (RFC 9126)."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import (
    Base,
    Digest,
    Identifier,
    Json,
    Tenant,
    UtcDateTime,
    Uuid,
    owned_by_organization,
    within_organization,
)


class PushedRequest(Tenant, Base):
    """A checked request behind a ``request_uri``; kept a day after its end, so that a slow sign-in can spend it."""

    __tablename__ = "pushed_requests"
    __table_args__ = (
        UniqueConstraint("organization_id", "digest"),
        Index("ix_pushed_requests_client", "organization_id", "client_id", "network", "expires_at"),
        owned_by_organization("pushed_requests"),
        within_organization("pushed_requests", "client_id", "clients"),
        Base.__table_args__,
    )

    digest: Mapped[bytes] = mapped_column(Digest)
    client_id: Mapped[UUID] = mapped_column(Uuid)
    network: Mapped[str] = mapped_column(Identifier(64), comment="where it came from, as far as limits count")
    parameters: Mapped[dict[str, Any]] = mapped_column(Json)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime] = mapped_column(
        UtcDateTime, index=True, comment="until when a browser may bring it"
    )
    used_at: Mapped[datetime | None] = mapped_column(UtcDateTime, comment="when the request was answered")
