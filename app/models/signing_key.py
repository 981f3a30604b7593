"""Signing keys of an organization."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import Base, Identifier, Json, Sealed, Tenant, UtcDateTime, owned_by_organization

NEXT, ACTIVE, RETIRED = "next", "active", "retired"


class SigningKey(Tenant, Base):
    """A key pair. ``slot`` makes (organization, algorithm, active) and (…, next) unique (KY-2)."""

    __tablename__ = "signing_keys"
    __table_args__ = (
        UniqueConstraint("organization_id", "kid"),
        UniqueConstraint("organization_id", "algorithm", "slot"),
        owned_by_organization("signing_keys"),
        Base.__table_args__,
    )

    kid: Mapped[str] = mapped_column(Identifier(64), comment="RFC 7638 thumbprint")
    algorithm: Mapped[str] = mapped_column(Identifier(16), comment="RS256, PS256, ES256, EdDSA")
    state: Mapped[str] = mapped_column(Identifier(16), comment="next, active, retired")
    slot: Mapped[str | None] = mapped_column(
        Identifier(16), comment="the state while only one may hold it; NULL once retired"
    )
    public_jwk: Mapped[dict[str, Any]] = mapped_column(Json)
    sealed_private_key: Mapped[bytes] = mapped_column(
        Sealed, comment="PKCS 8 under the organization's data key"
    )
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    activated_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    retired_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    remove_at: Mapped[datetime | None] = mapped_column(
        UtcDateTime, index=True, comment="when nothing it signed can still be valid"
    )
