"""Second factors: authenticator apps, recovery codes, and sign-ins that wait for one."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import BigInteger, Index, UniqueConstraint
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
from app.rules.identifiers import ROUTING_KEY_LENGTH


class AuthenticatorApp(Base):
    """The app of a user that shows codes (RFC 6238); there is a row once it has shown a right one."""

    __tablename__ = "authenticator_apps"
    __table_args__ = (
        owned_by_organization("authenticator_apps"),
        within_organization("authenticator_apps", "user_id", "users"),
        Base.__table_args__,
    )

    organization_id: Mapped[str] = mapped_column(Identifier(ROUTING_KEY_LENGTH), primary_key=True)
    user_id: Mapped[UUID] = mapped_column(Uuid, primary_key=True)
    sealed_secret: Mapped[bytes] = mapped_column(Sealed)
    last_step: Mapped[int] = mapped_column(
        BigInteger, comment="time step of the code used last: only later ones count"
    )
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    last_used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class RecoveryCode(Base):
    """A code that stands in for the second factor, once."""

    __tablename__ = "recovery_codes"
    __table_args__ = (
        Index("ix_recovery_codes_user", "organization_id", "user_id"),
        owned_by_organization("recovery_codes"),
        within_organization("recovery_codes", "user_id", "users"),
        Base.__table_args__,
    )

    organization_id: Mapped[str] = mapped_column(Identifier(ROUTING_KEY_LENGTH), primary_key=True)
    digest: Mapped[bytes] = mapped_column(Digest, primary_key=True)
    user_id: Mapped[UUID] = mapped_column(Uuid)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class PendingSignIn(Tenant, Base):
    """A first proof was given and the sign-in waits for more; the row goes when it is used."""

    __tablename__ = "pending_sign_ins"
    __table_args__ = (
        UniqueConstraint("organization_id", "digest"),
        Index("ix_pending_sign_ins_user", "organization_id", "user_id"),
        owned_by_organization("pending_sign_ins"),
        within_organization("pending_sign_ins", "user_id", "users"),
        Base.__table_args__,
    )

    digest: Mapped[bytes] = mapped_column(Digest)
    user_id: Mapped[UUID] = mapped_column(Uuid)
    browser_digest: Mapped[bytes] = mapped_column(Digest, comment="the browser that gave the first proof")
    known_browser_id: Mapped[UUID | None] = mapped_column(
        Uuid,
        comment="the known browser of its owner in which it was begun; NULL: another; no foreign key: it outlives that "
        "row by minutes",
    )
    amr: Mapped[str] = mapped_column(Identifier(64), comment="what was proved so far, RFC 8176")
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)


class SecondFactorTry(Base):
    """Wrong codes of a user in a row; one row a user, so that all who guess at it count together (MF-3)."""

    __tablename__ = "second_factor_tries"
    __table_args__ = (
        owned_by_organization("second_factor_tries"),
        within_organization("second_factor_tries", "user_id", "users"),
        Base.__table_args__,
    )

    organization_id: Mapped[str] = mapped_column(Identifier(ROUTING_KEY_LENGTH), primary_key=True)
    user_id: Mapped[UUID] = mapped_column(Uuid, primary_key=True)
    failures: Mapped[int] = mapped_column()
    total: Mapped[int] = mapped_column(
        default=0,
        comment="wrong codes since the last right one or a month without any, however slowly they came",
    )
    failed_at: Mapped[datetime] = mapped_column(UtcDateTime, comment="the last of them")
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
