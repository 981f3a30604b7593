"""Passkeys: public keys of people's authenticators, and the names under which authenticators know the people."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import BigInteger, Index, LargeBinary, String, UniqueConstraint
from sqlalchemy.dialects import mysql
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import (
    Base,
    Identifier,
    Tenant,
    UtcDateTime,
    Uuid,
    owned_by_organization,
    within_organization,
)
from app.rules.identifiers import ROUTING_KEY_LENGTH


class PasskeyHandle(Base):
    """What authenticators call a user: random, so that it says nothing of them and differs in each organization."""

    __tablename__ = "passkey_handles"
    __table_args__ = (
        UniqueConstraint("organization_id", "handle"),
        owned_by_organization("passkey_handles"),
        within_organization("passkey_handles", "user_id", "users"),
        Base.__table_args__,
    )

    organization_id: Mapped[str] = mapped_column(Identifier(ROUTING_KEY_LENGTH), primary_key=True)
    user_id: Mapped[UUID] = mapped_column(Uuid, primary_key=True)
    handle: Mapped[str] = mapped_column(Identifier(43), comment="256 random bits, base64url")


class Passkey(Tenant, Base):
    """A credential of WebAuthn that a user registered; it counts in this organization alone."""

    __tablename__ = "passkeys"
    __table_args__ = (
        UniqueConstraint("organization_id", "credential_id"),
        Index("ix_passkeys_user", "organization_id", "user_id"),
        owned_by_organization("passkeys"),
        within_organization("passkeys", "user_id", "users"),
        Base.__table_args__,
    )

    user_id: Mapped[UUID] = mapped_column(Uuid)
    credential_id: Mapped[str] = mapped_column(
        Identifier(1364), comment="at most 1023 bytes that the authenticator chose, base64url"
    )
    public_key: Mapped[bytes] = mapped_column(
        LargeBinary(2048).with_variant(mysql.VARBINARY(2048), "mysql", "mariadb"), comment="COSE"
    )
    sign_count: Mapped[int] = mapped_column(
        BigInteger, comment="of its latest use; only more counts, unless it never counts and stays 0"
    )
    transports: Mapped[str] = mapped_column(Identifier(128), comment="how browsers reach it: internal, usb …")
    aaguid: Mapped[UUID] = mapped_column(Uuid, comment="model of the authenticator, as it says; zero: unsaid")
    name: Mapped[str] = mapped_column(String(60))
    may_sync: Mapped[bool] = mapped_column(comment="its private key may be copied to other devices")
    is_synced: Mapped[bool] = mapped_column(comment="its private key was backed up when it was last used")
    signs_in_alone: Mapped[bool] = mapped_column(
        comment="it knows whose it is and verifies them: no name and no password need be typed"
    )
    user_agent: Mapped[str] = mapped_column(String(255), comment="the browser in which it was made")
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    last_used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
