"""Access tokens by digest."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ForeignKeyConstraint, Index, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import (
    Base,
    Digest,
    Identifier,
    Json,
    Tenant,
    UtcDateTime,
    Uuid,
    within_organization,
)


class AccessToken(Tenant, Base):
    """One access token, opaque or JWT (public id ``tok_…``, the ``jti`` of a JWT)."""

    __tablename__ = "access_tokens"
    __table_args__ = (
        UniqueConstraint("organization_id", "digest"),
        Index("ix_access_tokens_client", "organization_id", "client_id", "credential_id", "expires_at"),
        Index("ix_access_tokens_grant", "organization_id", "grant_id"),
        within_organization("access_tokens", "client_id", "clients"),
        within_organization("access_tokens", "grant_id", "grants"),
        # One index serves both keys, and a token cannot name another client's secret. The organization is the
        # client's: a key of its own for it would cost each token a look-up that proves nothing new.
        ForeignKeyConstraint(
            ["organization_id", "client_id", "credential_id"],
            ["client_credentials.organization_id", "client_credentials.client_id", "client_credentials.id"],
            name="fk_access_tokens_credential_id",
        ),
        Base.__table_args__,
    )

    digest: Mapped[bytes] = mapped_column(Digest)
    client_id: Mapped[UUID] = mapped_column(Uuid)
    grant_id: Mapped[UUID | None] = mapped_column(
        Uuid, comment="NULL for client_credentials: no user is behind it"
    )
    credential_id: Mapped[UUID | None] = mapped_column(Uuid, comment="the secret that minted it")
    scope: Mapped[str] = mapped_column(String(4000))
    audience: Mapped[str] = mapped_column(
        String(3200), comment="resource indicators, space-separated (RFC 8707)"
    )
    dpop_jkt: Mapped[str | None] = mapped_column(
        Identifier(43), comment="thumbprint of the key it is bound to (RFC 9449 section 6)"
    )
    act: Mapped[dict[str, Any] | None] = mapped_column(
        Json, comment="who acts for the subject (RFC 8693 section 4.1)"
    )
    parent_id: Mapped[UUID | None] = mapped_column(
        Uuid, comment="the token it was exchanged for (RFC 8693): it dies with that one"
    )
    issued_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    revoked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
