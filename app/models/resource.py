"""Resources, the APIs of an organization that access tokens are issued for (RFC 8707)."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import Index, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import Base, Identifier, Tenant, UtcDateTime, Uuid, owned_by_organization

ACTIVE, DISABLED = "active", "disabled"


class Resource(Tenant, Base):
    """An API (public id ``res_…``)."""

    __tablename__ = "resources"
    __table_args__ = (
        UniqueConstraint("organization_id", "identifier"),
        Index("ix_resources_name", "organization_id", "name_key", "id"),
        owned_by_organization("resources"),
        Base.__table_args__,
    )

    identifier: Mapped[str] = mapped_column(
        Identifier(255),
        comment="resource indicator: an absolute URI, the audience of its tokens; never changed",
    )
    name: Mapped[str] = mapped_column(String(200))
    name_key: Mapped[str] = mapped_column(Identifier(400), comment="case-folded name, for order and search")
    description: Mapped[str] = mapped_column(String(1000))
    access_token_format: Mapped[str | None] = mapped_column(
        Identifier(16), comment="opaque or jwt; NULL: as client or organization choose"
    )
    access_token_ttl_seconds: Mapped[int | None] = mapped_column(comment="NULL: the organization's")
    status: Mapped[str] = mapped_column(Identifier(16), default=ACTIVE, comment="active, disabled")
    version: Mapped[int] = mapped_column(default=1, comment="raised by each change of it or its scopes")
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    created_by: Mapped[str | None] = mapped_column(String(200))
    created_by_user_id: Mapped[UUID | None] = mapped_column(
        Uuid, comment="may be a root user, hence no foreign key"
    )
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)
