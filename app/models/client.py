"""Client applications and the scopes an organization knows."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Index, String, UniqueConstraint
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

ACTIVE, DISABLED, DELETED = "active", "disabled", "deleted"
# Who registered a client: somebody here, the client itself (RFC 7591), or its own metadata document.
PERSON, DYNAMIC, METADATA_DOCUMENT = "person", "dynamic", "metadata_document"


class Client(Tenant, Base):
    """A client application; its public ``client_id`` names organization and row."""

    __tablename__ = "clients"
    __table_args__ = (
        Index("ix_clients_name", "organization_id", "name_key", "id"),
        owned_by_organization("clients"),
        Base.__table_args__,
    )

    name: Mapped[str] = mapped_column(String(200))
    name_key: Mapped[str] = mapped_column(Identifier(400), comment="case-folded name, for order and search")
    type: Mapped[str] = mapped_column(Identifier(16), comment="web, spa, native, machine, device")
    status: Mapped[str] = mapped_column(Identifier(16), default=ACTIVE, comment="active, disabled, deleted")
    trust: Mapped[str] = mapped_column(
        Identifier(16), default="unverified", comment="first_party, verified, unverified"
    )
    source: Mapped[str] = mapped_column(
        Identifier(24), default=PERSON, comment="person, dynamic, metadata_document: who registered it"
    )
    metadata_document_uri: Mapped[str | None] = mapped_column(
        Identifier(500), comment="its client_id on the wire, where that is the address of its metadata"
    )
    document: Mapped[dict[str, Any]] = mapped_column(
        Json, comment="client metadata (RFC 7591 names), as rules/client_metadata completed it"
    )
    version: Mapped[int] = mapped_column(
        default=1, comment="raised by each change of the client or its credentials"
    )
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    created_by: Mapped[str | None] = mapped_column(String(200))
    created_by_user_id: Mapped[UUID | None] = mapped_column(
        Uuid, comment="may be a root user, hence no foreign key"
    )
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)
    last_used_at: Mapped[datetime | None] = mapped_column(UtcDateTime, comment="sampled")
    tokens_not_before: Mapped[datetime | None] = mapped_column(
        UtcDateTime, comment="what was issued before is dead: set by a revocation, never set back"
    )
    deleted_at: Mapped[datetime | None] = mapped_column(UtcDateTime, index=True)


class Scope(Tenant, Base):
    """A scope that clients of the organization may ask for, with the words that consent shows."""

    __tablename__ = "scopes"
    __table_args__ = (
        UniqueConstraint("organization_id", "name"),
        Index("ix_scopes_resource", "organization_id", "resource_id"),
        owned_by_organization("scopes"),
        within_organization("scopes", "resource_id", "resources"),
        Base.__table_args__,
    )

    name: Mapped[str] = mapped_column(Identifier(128))
    title: Mapped[str | None] = mapped_column(
        String(200), comment="verb and object in the user's words; NULL wants words"
    )
    description: Mapped[str | None] = mapped_column(String(1000))
    is_identity: Mapped[bool] = mapped_column(default=False, comment="OpenID Connect's own")
    resource_id: Mapped[UUID | None] = mapped_column(Uuid, comment="the API it belongs to; NULL: of any")
    version: Mapped[int] = mapped_column(default=1, comment="raised by each change of its words")
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    created_by: Mapped[str | None] = mapped_column(String(200))
