"""Sessions, their clients, known browsers, and attempts counted by rate limits."""

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
    within_organization,
)
from app.rules.identifiers import ROUTING_KEY_LENGTH


class Session(Tenant, Base):
    """A session of a user in one browser at one organization (SS-1)."""

    __tablename__ = "sessions"
    __table_args__ = (
        UniqueConstraint("organization_id", "digest"),
        Index("ix_sessions_user", "organization_id", "user_id"),
        Index("ix_sessions_provider", "organization_id", "provider_id", "provider_sid"),
        within_organization("sessions", "user_id", "users"),
    )

    digest: Mapped[bytes] = mapped_column(Digest)
    user_id: Mapped[UUID]
    created_at: Mapped[datetime]
    authenticated_at: Mapped[datetime] = mapped_column(comment="auth_time of OpenID Connect")
    amr: Mapped[str] = mapped_column(Identifier(64), default="pwd", comment="RFC 8176, space-separated")
    last_seen_at: Mapped[datetime] = mapped_column(comment="sampled, at most once a minute")
    expires_at: Mapped[datetime] = mapped_column(index=True, comment="absolute expiry")
    revoked_at: Mapped[datetime | None]
    address: Mapped[str | None] = mapped_column(Identifier(64))
    user_agent: Mapped[str] = mapped_column(String(255), default="")
    provider_id: Mapped[UUID | None] = mapped_column(
        comment="identity provider of the sign-in; no foreign key, because it may exist longer"
    )
    provider_sid: Mapped[str | None] = mapped_column(Identifier(255), comment="sid of its ID token")


class SessionClient(Base):
    """A client to notify when a session ends (OpenID Connect Back-Channel Logout 1.0)."""

    __tablename__ = "session_clients"
    __table_args__ = (
        Index("ix_session_clients_client", "organization_id", "client_id"),
        within_organization("session_clients", "user_id", "users"),
        within_organization("session_clients", "client_id", "clients"),
    )

    organization_id: Mapped[str] = mapped_column(Identifier(ROUTING_KEY_LENGTH), primary_key=True)
    session_id: Mapped[UUID] = mapped_column(
        primary_key=True,
        comment="session whose end it is notified of; no foreign key, because it is read after that",
    )
    client_id: Mapped[UUID] = mapped_column(primary_key=True)
    sid: Mapped[UUID] = mapped_column(
        primary_key=True, comment="session named in its ID token, which a later one may have replaced"
    )
    user_id: Mapped[UUID]
    expires_at: Mapped[datetime] = mapped_column(index=True, comment="when the session has expired")


class KnownBrowser(Tenant, Base):
    """A browser in which a user has signed in before; failures elsewhere do not delay them there (LK-1)."""

    __tablename__ = "known_browsers"
    __table_args__ = (
        UniqueConstraint("organization_id", "digest"),
        Index("ix_known_browsers_user", "organization_id", "user_id"),
        within_organization("known_browsers", "user_id", "users"),
    )

    digest: Mapped[bytes] = mapped_column(Digest, comment="digest of the value in its cookie")
    user_id: Mapped[UUID]
    created_at: Mapped[datetime]
    last_used_at: Mapped[datetime] = mapped_column(comment="time of the last complete sign-in")
    expires_at: Mapped[datetime] = mapped_column(index=True)
    address: Mapped[str | None] = mapped_column(Identifier(64), comment="IP address of that sign-in")
    user_agent: Mapped[str] = mapped_column(String(255), default="")
    factor_given_at: Mapped[datetime | None] = mapped_column(
        comment="when a second factor was last verified in it; NULL: never"
    )
    code_failures: Mapped[int] = mapped_column(default=0, comment="incorrect codes in a row")
    code_failed_at: Mapped[datetime | None] = mapped_column(comment="time of the last one")


class RequestCount(Base):
    """How many requests one process counted in a minute: see ``operations/store/request_limits``."""

    __tablename__ = "request_counts"

    organization_id: Mapped[str] = mapped_column(
        Identifier(ROUTING_KEY_LENGTH), primary_key=True, comment="routing key of the organization"
    )
    bucket: Mapped[bytes] = mapped_column(
        Digest, primary_key=True, comment="digest of the kind of limit and the client, user or network"
    )
    starts_at: Mapped[datetime] = mapped_column(primary_key=True, comment="the minute")
    process_id: Mapped[UUID] = mapped_column(
        primary_key=True, comment="process that counted; each has a new id"
    )
    count: Mapped[int]
    expires_at: Mapped[datetime] = mapped_column(index=True)


class Attempt(Tenant, Base):
    """One counted attempt, such as a failed sign-in.

    Attempts are appended and counted to avoid a hot counter row.
    """

    __tablename__ = "attempts"
    __table_args__ = (Index("ix_attempts_bucket", "organization_id", "bucket", "at"),)

    bucket: Mapped[bytes] = mapped_column(Digest, comment="digest of what is limited: kind, account, network")
    at: Mapped[datetime]
    expires_at: Mapped[datetime] = mapped_column(index=True)
