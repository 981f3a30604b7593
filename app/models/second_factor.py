"""Second factors: authenticator apps, recovery codes, passkeys, and pending sign-ins."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import BigInteger, Index, LargeBinary, String, UniqueConstraint
from sqlalchemy.dialects import mysql
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import (
    Base,
    Digest,
    Identifier,
    Sealed,
    Tenant,
    within_organization,
)
from app.rules.identifiers import ROUTING_KEY_LENGTH


class AuthenticatorApp(Base):
    """A user's authenticator app (RFC 6238). The row is created after its first correct code."""

    __tablename__ = "authenticator_apps"
    __table_args__ = (within_organization("authenticator_apps", "user_id", "users"),)

    organization_id: Mapped[str] = mapped_column(Identifier(ROUTING_KEY_LENGTH), primary_key=True)
    user_id: Mapped[UUID] = mapped_column(primary_key=True)
    sealed_secret: Mapped[bytes] = mapped_column(Sealed)
    last_step: Mapped[int] = mapped_column(
        BigInteger, comment="time step of the code used last: only later ones count"
    )
    created_at: Mapped[datetime]
    last_used_at: Mapped[datetime | None]


class RecoveryCode(Base):
    """A single-use code that replaces the second factor."""

    __tablename__ = "recovery_codes"
    __table_args__ = (
        Index("ix_recovery_codes_user", "organization_id", "user_id"),
        within_organization("recovery_codes", "user_id", "users"),
    )

    organization_id: Mapped[str] = mapped_column(Identifier(ROUTING_KEY_LENGTH), primary_key=True)
    digest: Mapped[bytes] = mapped_column(Digest, primary_key=True)
    user_id: Mapped[UUID]
    created_at: Mapped[datetime]
    used_at: Mapped[datetime | None]


class PendingSignIn(Tenant, Base):
    """A sign-in that waits for its next step after the first factor. The row is deleted when it is used."""

    __tablename__ = "pending_sign_ins"
    __table_args__ = (
        UniqueConstraint("organization_id", "digest"),
        Index("ix_pending_sign_ins_user", "organization_id", "user_id"),
        within_organization("pending_sign_ins", "user_id", "users"),
    )

    digest: Mapped[bytes] = mapped_column(Digest)
    user_id: Mapped[UUID]
    browser_digest: Mapped[bytes] = mapped_column(Digest, comment="browser that completed the first step")
    known_browser_id: Mapped[UUID | None] = mapped_column(
        comment="known browser in which it was started; NULL: unknown; no foreign key, because it may exist longer"
    )
    amr: Mapped[str] = mapped_column(Identifier(64), comment="authentication methods so far (RFC 8176)")
    provider_id: Mapped[UUID | None] = mapped_column(
        comment="identity provider of the first step; no foreign key, because it may exist longer"
    )
    provider_sid: Mapped[str | None] = mapped_column(Identifier(255), comment="sid of its ID token")
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime] = mapped_column(index=True)


class SecondFactorTry(Base):
    """A user's consecutive incorrect codes, in one row per user so that all attempts count together (MF-3)."""

    __tablename__ = "second_factor_tries"
    __table_args__ = (within_organization("second_factor_tries", "user_id", "users"),)

    organization_id: Mapped[str] = mapped_column(Identifier(ROUTING_KEY_LENGTH), primary_key=True)
    user_id: Mapped[UUID] = mapped_column(primary_key=True)
    failures: Mapped[int] = mapped_column()
    total: Mapped[int] = mapped_column(
        default=0, comment="incorrect codes since the last correct one, or since a month without any"
    )
    failed_at: Mapped[datetime] = mapped_column(comment="time of the last one")
    expires_at: Mapped[datetime] = mapped_column(index=True)


class PasskeyHandle(Base):
    """The WebAuthn user handle of a user: random, revealing nothing, different in each organization."""

    __tablename__ = "passkey_handles"
    __table_args__ = (
        UniqueConstraint("organization_id", "handle"),
        within_organization("passkey_handles", "user_id", "users"),
    )

    organization_id: Mapped[str] = mapped_column(Identifier(ROUTING_KEY_LENGTH), primary_key=True)
    user_id: Mapped[UUID] = mapped_column(primary_key=True)
    handle: Mapped[str] = mapped_column(Identifier(43), comment="256 random bits, base64url")


class Passkey(Tenant, Base):
    """A WebAuthn credential of a user, valid only in this organization."""

    __tablename__ = "passkeys"
    __table_args__ = (
        UniqueConstraint("organization_id", "credential_id"),
        Index("ix_passkeys_user", "organization_id", "user_id"),
        within_organization("passkeys", "user_id", "users"),
    )

    user_id: Mapped[UUID]
    credential_id: Mapped[str] = mapped_column(
        Identifier(1364), comment="at most 1023 bytes that the authenticator chose, base64url"
    )
    public_key: Mapped[bytes] = mapped_column(
        LargeBinary(2048).with_variant(mysql.VARBINARY(2048), "mysql", "mariadb"), comment="COSE"
    )
    sign_count: Mapped[int] = mapped_column(
        BigInteger, comment="signature counter of the last use; must increase, unless it stays 0"
    )
    transports: Mapped[str] = mapped_column(Identifier(128), comment="transports: internal, usb …")
    aaguid: Mapped[UUID] = mapped_column(comment="model of the authenticator as reported; zero if unknown")
    name: Mapped[str] = mapped_column(String(60))
    may_sync: Mapped[bool] = mapped_column(comment="its private key may be copied to other devices")
    is_synced: Mapped[bool] = mapped_column(comment="its private key was backed up when it was last used")
    signs_in_alone: Mapped[bool] = mapped_column(
        comment="discoverable and verifies the user, so it can sign in without email and password"
    )
    user_agent: Mapped[str] = mapped_column(String(255), comment="browser in which it was created")
    created_at: Mapped[datetime]
    last_used_at: Mapped[datetime | None]
