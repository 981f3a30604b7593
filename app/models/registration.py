"""Clients that registered themselves: how each came here, and the tokens that let others register."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import ForeignKeyConstraint, Index, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import Base, Digest, Identifier, Tenant, UtcDateTime, Uuid, owned_by_organization


class RegistrationToken(Tenant, Base):
    """An initial access token (RFC 7591 section 3): whoever holds it may register clients, so often and so long."""

    __tablename__ = "registration_tokens"
    __table_args__ = (
        UniqueConstraint("organization_id", "digest"),
        owned_by_organization("registration_tokens"),
        Base.__table_args__,
    )

    digest: Mapped[bytes] = mapped_column(Digest)
    name: Mapped[str] = mapped_column(String(200))
    hint: Mapped[str] = mapped_column(Identifier(4), comment="last four characters of the random part")
    max_uses: Mapped[int | None] = mapped_column(comment="NULL: as often as the organization has room")
    uses: Mapped[int] = mapped_column(default=0)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    created_by: Mapped[str | None] = mapped_column(String(200))
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    last_used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    revoked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class ClientRegistration(Tenant, Base):
    """What is kept of a client that no person registered; ``id`` is the client's.

    By dynamic registration it has the digest of its registration access token (RFC 7592), by a metadata document
    that of its address and when the copy here must be renewed.
    """

    __tablename__ = "client_registrations"
    __table_args__ = (
        UniqueConstraint("organization_id", "address_digest"),
        Index("ix_client_registrations_idle", "idle_check_at"),
        Index("ix_client_registrations_access", "organization_id", "access_digest"),
        ForeignKeyConstraint(
            ["organization_id", "id"],
            ["clients.organization_id", "clients.id"],
            name="fk_client_registrations_client",
        ),
        owned_by_organization("client_registrations"),
        Base.__table_args__,
    )

    access_digest: Mapped[bytes | None] = mapped_column(Digest, comment="registration access token")
    registration_token_id: Mapped[UUID | None] = mapped_column(
        Uuid, comment="the initial access token, whose row may be gone"
    )
    address_digest: Mapped[bytes | None] = mapped_column(
        Digest, comment="of the document's address; NULL once the client has ended"
    )
    fetched_at: Mapped[datetime | None] = mapped_column(
        UtcDateTime, comment="when the document was last read"
    )
    fresh_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    idle_check_at: Mapped[datetime | None] = mapped_column(
        UtcDateTime, comment="when to look whether it is still used; NULL once it has ended"
    )
