"""Client secrets with a digest to verify them and a sealed copy to reveal them, and where they were used."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import (
    Base,
    Digest,
    Identifier,
    Sealed,
    Tenant,
    UtcDateTime,
    Uuid,
    owned_by_organization,
    within_organization,
)


class Credential(Tenant, Base):
    """A client secret (public id ``sec_…``)."""

    __tablename__ = "client_credentials"
    __table_args__ = (
        UniqueConstraint("organization_id", "digest"),
        UniqueConstraint("organization_id", "client_id", "id"),
        owned_by_organization("client_credentials"),
        within_organization("client_credentials", "client_id", "clients"),
        Base.__table_args__,
    )

    client_id: Mapped[UUID] = mapped_column(Uuid)
    name: Mapped[str] = mapped_column(String(100))
    digest: Mapped[bytes] = mapped_column(Digest)
    hint: Mapped[str] = mapped_column(Identifier(8), comment="last four characters")
    sealed: Mapped[bytes | None] = mapped_column(
        Sealed, comment="NULL where the organization shows secrets once"
    )
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    created_by: Mapped[str | None] = mapped_column(String(200))
    expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime, index=True)
    retiring_since: Mapped[datetime | None] = mapped_column(
        UtcDateTime, comment="set by a rotation that may be cancelled"
    )
    previous_expires_at: Mapped[datetime | None] = mapped_column(
        UtcDateTime, comment="the end that cancelling restores"
    )
    takes_tokens: Mapped[bool] = mapped_column(
        default=False, comment="when its end comes, what it minted ends with it"
    )
    notified_at: Mapped[datetime | None] = mapped_column(
        UtcDateTime, comment="when its people were told that it ends while in use"
    )
    revoked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    revoked_by: Mapped[str | None] = mapped_column(String(200))
    tokens_revoked_at: Mapped[datetime | None] = mapped_column(
        UtcDateTime, comment="set: no token that it minted is alive"
    )
    tokens_not_before: Mapped[datetime | None] = mapped_column(
        UtcDateTime, comment="what it minted before is dead: set by a revocation, never set back"
    )
    first_used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    last_used_at: Mapped[datetime | None] = mapped_column(UtcDateTime, comment="sampled")
    last_used_address: Mapped[str | None] = mapped_column(Identifier(64))


class CredentialUse(Tenant, Base):
    """An IP address that a secret was used from.

    Sampled with at most one write a minute, and kept for 30 days.
    """

    __tablename__ = "credential_uses"
    __table_args__ = (
        UniqueConstraint("organization_id", "credential_id", "address"),
        owned_by_organization("credential_uses"),
        within_organization("credential_uses", "credential_id", "client_credentials"),
        Base.__table_args__,
    )

    credential_id: Mapped[UUID] = mapped_column(Uuid)
    address: Mapped[str] = mapped_column(Identifier(64))
    last_used_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
