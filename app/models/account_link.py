"""Links that prove something of somebody's account, once: a new password may be chosen, an address is read."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import Index, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import (
    Base,
    Digest,
    Identifier,
    Tenant,
    UtcDateTime,
    Uuid,
    owned_by_organization,
    within_organization,
)
from app.rules.identifiers import ROUTING_KEY_LENGTH


class AccountLink(Base):
    """The one link of a purpose that a user may have: the row goes when it is used, a new link takes its place."""

    __tablename__ = "account_links"
    __table_args__ = (
        UniqueConstraint("organization_id", "digest"),
        owned_by_organization("account_links"),
        within_organization("account_links", "user_id", "users"),
        Base.__table_args__,
    )

    organization_id: Mapped[str] = mapped_column(Identifier(ROUTING_KEY_LENGTH), primary_key=True)
    user_id: Mapped[UUID] = mapped_column(Uuid, primary_key=True)
    purpose: Mapped[str] = mapped_column(
        Identifier(16), primary_key=True, comment="the kind of its token: pw, ev"
    )
    digest: Mapped[bytes] = mapped_column(Digest)
    bound_digest: Mapped[bytes] = mapped_column(
        Digest, comment="of what must stand unchanged until it is used: the password, the address"
    )
    address: Mapped[str | None] = mapped_column(
        String(320), comment="the address that it proves, as typed; none where it is about a password"
    )
    is_mailed: Mapped[bool] = mapped_column(
        comment="it went to the user's mailbox and nowhere else, so whoever holds it reads that mailbox"
    )
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)


class Registration(Tenant, Base):
    """An account that somebody asked for, and has when the address is proven or an administrator lets them in.

    Several may wait for one address: whoever asks with somebody else's does not end what its owner asked for.
    """

    __tablename__ = "registrations"
    __table_args__ = (
        UniqueConstraint("organization_id", "digest"),
        Index("ix_registrations_email", "organization_id", "email_canonical"),
        owned_by_organization("registrations"),
        Base.__table_args__,
    )

    digest: Mapped[bytes] = mapped_column(Digest, comment="of the token in the link")
    email: Mapped[str] = mapped_column(String(320), comment="as typed")
    email_canonical: Mapped[str] = mapped_column(Identifier(320))
    name: Mapped[str] = mapped_column(String(200))
    password_hash: Mapped[str] = mapped_column(String(255), comment="argon2id")
    is_mailed: Mapped[bool] = mapped_column(comment="its link went to the mailbox and nowhere else")
    address: Mapped[str | None] = mapped_column(Identifier(64), comment="where it was asked for")
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
