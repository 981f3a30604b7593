"""Audit events, their hash chain, and failed requests. Audit rows are inserted and never updated."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, Index, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import (
    Base,
    Digest,
    Identifier,
    Json,
    Tenant,
    UtcDateTime,
    Uuid,
    owned_by_organization,
    within_organization,
)
from app.rules.identifiers import ROUTING_KEY_LENGTH


class AuditEvent(Tenant, Base):
    """One audit event (public id ``evt_…``)."""

    __tablename__ = "audit_events"
    __table_args__ = (
        Index("ix_audit_events_target", "organization_id", "target_id", "id"),
        Index("ix_audit_events_actor", "organization_id", "actor_id", "id"),
        Index("ix_audit_events_action", "organization_id", "action", "id"),
        owned_by_organization("audit_events"),
        Base.__table_args__,
    )

    at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    action: Mapped[str] = mapped_column(Identifier(64), comment="past tense: client.registered")
    actor_kind: Mapped[str] = mapped_column(Identifier(16))
    actor_id: Mapped[str | None] = mapped_column(Identifier(64), comment="public id")
    actor_label: Mapped[str] = mapped_column(String(200), comment="e-mail or client name at the time")
    actor_organization: Mapped[str] = mapped_column(
        Identifier(8), comment="differs from organization_id when root acts"
    )
    target_type: Mapped[str | None] = mapped_column(Identifier(32))
    target_id: Mapped[str | None] = mapped_column(Identifier(64))
    before: Mapped[dict[str, Any] | None] = mapped_column(Json)
    after: Mapped[dict[str, Any] | None] = mapped_column(Json)
    address: Mapped[str | None] = mapped_column(Identifier(64))
    request_id: Mapped[str | None] = mapped_column(Identifier(64))


class AuditLink(Tenant, Base):
    """The link of one event (its ``id``) in the organization's hash chain, written by the sealer and never updated."""

    __tablename__ = "audit_links"
    __table_args__ = (
        UniqueConstraint("organization_id", "position", name="uq_audit_links_position"),
        owned_by_organization("audit_links"),
        Base.__table_args__,
    )

    position: Mapped[int] = mapped_column(BigInteger, comment="1 for the first event that was sealed")
    mac: Mapped[bytes] = mapped_column(Digest, comment="over the link before, the position and the event")


class AuditChain(Base):
    """Both ends of an organization's hash chain."""

    __tablename__ = "audit_chains"
    __table_args__ = (owned_by_organization("audit_chains"), Base.__table_args__)

    organization_id: Mapped[str] = mapped_column(Identifier(ROUTING_KEY_LENGTH), primary_key=True)
    length: Mapped[int] = mapped_column(BigInteger, comment="position of the last link")
    head: Mapped[bytes] = mapped_column(Digest, comment="mac of the last link")
    removed: Mapped[int] = mapped_column(
        BigInteger, comment="position up to which retention has removed links and their events"
    )
    anchor: Mapped[bytes] = mapped_column(Digest, comment="mac of the last link that was removed")
    mac: Mapped[bytes] = mapped_column(Digest, comment="over both ends")
    grown_at: Mapped[datetime] = mapped_column(UtcDateTime)


class FailedRequest(Tenant, Base):
    """One failed request of a known client (public id ``flr_…``)."""

    __tablename__ = "failed_requests"
    __table_args__ = (
        Index("ix_failed_requests_client", "organization_id", "client_id", "cause", "id"),
        Index("ix_failed_requests_cause", "organization_id", "cause", "id"),
        Index("ix_failed_requests_request", "organization_id", "request_id"),
        owned_by_organization("failed_requests"),
        within_organization("failed_requests", "client_id", "clients"),
        Base.__table_args__,
    )

    client_id: Mapped[UUID] = mapped_column(Uuid)
    at: Mapped[datetime] = mapped_column(UtcDateTime)
    request_id: Mapped[str] = mapped_column(Identifier(64), comment="req_…, as the error page shows it")
    endpoint: Mapped[str] = mapped_column(Identifier(32), comment="authorize, token, introspect …")
    method: Mapped[str] = mapped_column(Identifier(8))
    status: Mapped[int] = mapped_column()
    error: Mapped[str] = mapped_column(Identifier(64), comment="the code that the client was told")
    description: Mapped[str] = mapped_column(String(500), comment="the words that it was told")
    cause: Mapped[str] = mapped_column(Identifier(48), comment="a code of rules/audit/failed_requests")
    received: Mapped[str | None] = mapped_column(String(2048))
    expected: Mapped[list[str]] = mapped_column(Json, comment="any one of them would have been right")
    parameters: Mapped[dict[str, Any]] = mapped_column(Json, comment="of the request, secrets removed")
    address: Mapped[str | None] = mapped_column(Identifier(64))
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
