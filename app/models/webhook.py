"""Webhooks: the endpoints that receive events of an organization, and their deliveries."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Index, String
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import (
    Base,
    Identifier,
    Json,
    Sealed,
    Tenant,
    UtcDateTime,
    Uuid,
    owned_by_organization,
    within_organization,
)

ENABLED, DISABLED = "enabled", "disabled"
PENDING, DELIVERED, FAILED = "pending", "delivered", "failed"


class Webhook(Tenant, Base):
    """One endpoint (public id ``whk_…``)."""

    __tablename__ = "webhooks"
    __table_args__ = (owned_by_organization("webhooks"), Base.__table_args__)

    url: Mapped[str] = mapped_column(String(2048))
    description: Mapped[str] = mapped_column(String(200))
    event_types: Mapped[list[str]] = mapped_column(Json, comment="names, groups such as user.*, or *")
    status: Mapped[str] = mapped_column(Identifier(16), comment="enabled, disabled")
    disabled_because: Mapped[str | None] = mapped_column(
        Identifier(16), comment="person, failing, gone, backlog; NULL while it is enabled"
    )
    sealed_secret: Mapped[bytes | None] = mapped_column(Sealed, comment="signs; NULL once it was deleted")
    sealed_previous_secret: Mapped[bytes | None] = mapped_column(
        Sealed, comment="signs beside it until previous_secret_until"
    )
    previous_secret_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    failing_since: Mapped[datetime | None] = mapped_column(
        UtcDateTime, comment="the first failure after the last success"
    )
    version: Mapped[int]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    created_by: Mapped[str | None] = mapped_column(String(200))
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)
    deleted_at: Mapped[datetime | None] = mapped_column(
        UtcDateTime, index=True, comment="its row goes once its deliveries are gone"
    )


class WebhookDelivery(Tenant, Base):
    """One event for one endpoint (public id ``dlv_…``, its ``webhook-id``) and its last attempt."""

    __tablename__ = "webhook_deliveries"
    __table_args__ = (
        Index("ix_webhook_deliveries_webhook", "organization_id", "webhook_id", "id"),
        owned_by_organization("webhook_deliveries"),
        within_organization("webhook_deliveries", "webhook_id", "webhooks"),
        Base.__table_args__,
    )

    webhook_id: Mapped[UUID] = mapped_column(Uuid)
    message_id: Mapped[UUID] = mapped_column(
        Uuid, comment="the message of the outbox that carries it; that row may be gone"
    )
    event_type: Mapped[str] = mapped_column(Identifier(64))
    body: Mapped[dict[str, Any]] = mapped_column(Json)
    status: Mapped[str] = mapped_column(
        Identifier(16), comment="pending, delivered, failed; pending too when the outbox gave it up"
    )
    attempts: Mapped[int]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    attempted_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    duration_ms: Mapped[int | None]
    response_status: Mapped[int | None] = mapped_column(comment="NULL: no whole answer came")
    response_headers: Mapped[dict[str, str] | None] = mapped_column(Json, comment="a few, cut short")
    failure: Mapped[str | None] = mapped_column(String(200), comment="why the last attempt failed")
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
