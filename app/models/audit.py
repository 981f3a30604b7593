"""Audit log and its chain, failed requests, outbox, webhooks, revocations, and shared state of workers."""

from __future__ import annotations

from datetime import datetime
from typing import Any
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

ENABLED, DISABLED = "enabled", "disabled"
PENDING, DELIVERED, FAILED = "pending", "delivered", "failed"


class AuditEvent(Tenant, Base):
    """One audit event (public id ``evt_…``)."""

    __tablename__ = "audit_events"
    __table_args__ = (
        Index("ix_audit_events_target", "organization_id", "target_id", "id"),
        Index("ix_audit_events_actor", "organization_id", "actor_id", "id"),
        Index("ix_audit_events_action", "organization_id", "action", "id"),
        Index("ix_audit_events_address", "organization_id", "address", "id"),
    )

    at: Mapped[datetime] = mapped_column(index=True)
    action: Mapped[str] = mapped_column(Identifier(64), comment="past tense: client.registered")
    actor_kind: Mapped[str] = mapped_column(Identifier(16))
    actor_id: Mapped[str | None] = mapped_column(Identifier(64), comment="public id")
    actor_label: Mapped[str] = mapped_column(
        String(200), comment="email or client name at the time of the event"
    )
    actor_organization: Mapped[str] = mapped_column(
        Identifier(8), comment="organization of the actor; another one for users and clients of root"
    )
    target_type: Mapped[str | None] = mapped_column(Identifier(32))
    target_id: Mapped[str | None] = mapped_column(Identifier(64))
    before: Mapped[dict[str, Any] | None]
    after: Mapped[dict[str, Any] | None]
    address: Mapped[str | None] = mapped_column(Identifier(64))
    request_id: Mapped[str | None] = mapped_column(Identifier(64))


class AuditLink(Tenant, Base):
    """The link of one event (its ``id``) in the organization's hash chain, written by the sealer and never updated."""

    __tablename__ = "audit_links"
    __table_args__ = (UniqueConstraint("organization_id", "position", name="uq_audit_links_position"),)

    position: Mapped[int] = mapped_column(BigInteger, comment="1 for the first event that was sealed")
    mac: Mapped[bytes] = mapped_column(Digest, comment="MAC of the previous link, the position and the event")


class AuditChain(Base):
    """Both ends of an organization's hash chain."""

    __tablename__ = "audit_chains"

    organization_id: Mapped[str] = mapped_column(Identifier(ROUTING_KEY_LENGTH), primary_key=True)
    length: Mapped[int] = mapped_column(BigInteger, comment="position of the last link")
    head: Mapped[bytes] = mapped_column(Digest, comment="mac of the last link")
    removed: Mapped[int] = mapped_column(
        BigInteger, comment="position up to which links and their events were deleted after their retention"
    )
    anchor: Mapped[bytes] = mapped_column(Digest, comment="mac of the last deleted link")
    mac: Mapped[bytes] = mapped_column(Digest, comment="MAC of both ends")
    grown_at: Mapped[datetime]


class FailedRequest(Tenant, Base):
    """One failed request of a known client (public id ``flr_…``)."""

    __tablename__ = "failed_requests"
    __table_args__ = (
        Index("ix_failed_requests_client", "organization_id", "client_id", "cause", "id"),
        Index("ix_failed_requests_cause", "organization_id", "cause", "id"),
        Index("ix_failed_requests_request", "organization_id", "request_id"),
        Index("ix_failed_requests_recent", "organization_id", "at", "client_id", "cause", "id"),
        within_organization("failed_requests", "client_id", "clients"),
    )

    client_id: Mapped[UUID]
    at: Mapped[datetime]
    request_id: Mapped[str] = mapped_column(Identifier(64), comment="req_…, as shown on the error page")
    endpoint: Mapped[str] = mapped_column(Identifier(32), comment="authorize, token, introspect …")
    method: Mapped[str] = mapped_column(Identifier(8))
    status: Mapped[int] = mapped_column()
    error: Mapped[str] = mapped_column(Identifier(64), comment="the error code of the response")
    description: Mapped[str] = mapped_column(String(500), comment="the error description of the response")
    cause: Mapped[str] = mapped_column(Identifier(48), comment="a code of rules/audit/failed_requests")
    received: Mapped[str | None] = mapped_column(String(2048))
    expected: Mapped[list[str]] = mapped_column(comment="the values that would have been accepted")
    parameters: Mapped[dict[str, Any]] = mapped_column(comment="parameters of the request, without secrets")
    address: Mapped[str | None] = mapped_column(Identifier(64))
    expires_at: Mapped[datetime] = mapped_column(index=True)


class UsageCounter(Base):
    """How often something happened in an hour or a day of UTC: see ``operations/store/usage_counters``.

    The key has no NULL, so that an INSERT finds the row that it adds to: ids of zeros stand for all clients together
    and for no subject. It refers to nothing: counting must not lock clients, and deleted ones may still be counted.
    """

    __tablename__ = "usage_counters"

    organization_id: Mapped[str] = mapped_column(
        Identifier(ROUTING_KEY_LENGTH), primary_key=True, comment="routing key of the organization"
    )
    client_id: Mapped[UUID] = mapped_column(primary_key=True, comment="zeros: the whole organization")
    span: Mapped[str] = mapped_column(Identifier(4), primary_key=True, comment="hour, day")
    metric: Mapped[str] = mapped_column(
        Identifier(16), primary_key=True, comment="tokens, requests, failed, sign_ins, users"
    )
    starts_at: Mapped[datetime] = mapped_column(primary_key=True, index=True)
    detail: Mapped[str] = mapped_column(
        Identifier(48), primary_key=True, comment="grant type, endpoint and outcome, cause, or method"
    )
    subject_id: Mapped[UUID] = mapped_column(
        primary_key=True, comment="the secret of requests, the user of users, otherwise zeros"
    )
    count: Mapped[int] = mapped_column(BigInteger)


class SampledRequest(Tenant, Base):
    """One of the successful requests of a client, kept for a day (public id ``req_…``).

    No foreign key refers to the client: each insert would lock its row.
    """

    __tablename__ = "sampled_requests"
    __table_args__ = (
        Index("ix_sampled_requests_client", "organization_id", "client_id", "id"),
        Index("ix_sampled_requests_request", "organization_id", "request_id"),
    )

    client_id: Mapped[UUID]
    at: Mapped[datetime]
    request_id: Mapped[str] = mapped_column(Identifier(64), comment="req_…, of the response header")
    endpoint: Mapped[str] = mapped_column(Identifier(32), comment="authorize, token, introspect …")
    method: Mapped[str] = mapped_column(Identifier(8))
    status: Mapped[int] = mapped_column()
    parameters: Mapped[dict[str, Any]] = mapped_column(comment="parameters of the request, without secrets")
    address: Mapped[str | None] = mapped_column(Identifier(64))
    expires_at: Mapped[datetime] = mapped_column(index=True)


class OutboxMessage(Tenant, Base):
    """A message that leaves the process after the change it belongs to was committed."""

    __tablename__ = "outbox"
    __table_args__ = (
        Index("ix_outbox_due", "done_at", "available_at"),
        Index("ix_outbox_receiver", "organization_id", "receiver", "done_at"),
    )

    kind: Mapped[str] = mapped_column(Identifier(64))
    receiver: Mapped[str] = mapped_column(
        Identifier(64),
        comment="public id of the receiver, which is skipped for a while if it does not respond",
    )
    payload: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
    available_at: Mapped[datetime] = mapped_column(
        comment="time of the next attempt, or the end of the lease while it is being delivered"
    )
    attempts: Mapped[int] = mapped_column(default=0)
    done_at: Mapped[datetime | None]
    outcome: Mapped[str | None] = mapped_column(
        Identifier(16),
        comment="delivered, refused, given_up; while pending failed, waiting with one that has, retrying or immediate",
    )
    expires_at: Mapped[datetime] = mapped_column(index=True, comment="time of the last attempt")


class Revocation(Tenant, Base):
    """One revocation, written in its transaction, for verifiers that have no access to the database tables."""

    __tablename__ = "revocation_log"

    kind: Mapped[str] = mapped_column(
        Identifier(16), comment="token, grant, client, credential, user, organization"
    )
    subject: Mapped[bytes] = mapped_column(
        LargeBinary(32).with_variant(mysql.VARBINARY(32), "mysql", "mariadb"),
        comment="row id, or the organization's key",
    )
    not_before: Mapped[datetime] = mapped_column(comment="what was issued before is revoked")
    expires_at: Mapped[datetime] = mapped_column(index=True, comment="when everything it names has expired")


class IdempotencyKey(Base):
    """The response to a POST with an Idempotency-Key, without secrets, for 24 hours."""

    __tablename__ = "idempotency_keys"

    organization_id: Mapped[str] = mapped_column(Identifier(ROUTING_KEY_LENGTH), primary_key=True)
    key_digest: Mapped[bytes] = mapped_column(Digest, primary_key=True, comment="key, caller and route")
    body_digest: Mapped[bytes] = mapped_column(Digest)
    status: Mapped[int | None] = mapped_column(comment="NULL while the first request is in progress")
    response: Mapped[bytes | None] = mapped_column(Sealed)
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime] = mapped_column(index=True)


class CacheInvalidation(Tenant, Base):
    """A change that invalidates what is cached, inserted in its transaction. Every worker reads all rows every 0.4 s.

    ``at`` is for people: no worker compares times. Rows are deleted only by ``cache_invalidation.prune``.
    """

    __tablename__ = "view_changes"

    at: Mapped[datetime] = mapped_column(index=True)
    is_for_all: Mapped[bool] = mapped_column(default=False, comment="whether it concerns all organizations")


class UsedIdentifier(Base):
    """An identifier that may be used once, such as the ``jti`` of a client assertion or DPoP proof, until it would have
    expired.
    """

    __tablename__ = "used_identifiers"

    organization_id: Mapped[str] = mapped_column(Identifier(ROUTING_KEY_LENGTH), primary_key=True)
    digest: Mapped[bytes] = mapped_column(Digest, primary_key=True, comment="purpose, owner and value")
    attempt: Mapped[UUID] = mapped_column(
        comment="attempt that wrote it, to distinguish a lost response from a replay"
    )
    expires_at: Mapped[datetime] = mapped_column(index=True)


class Lease(Base):
    """The holder of a job that only one process may run, taken by compare-and-set on ``holder`` and ``expires_at``."""

    __tablename__ = "leases"

    name: Mapped[str] = mapped_column(Identifier(64), primary_key=True)
    holder: Mapped[str] = mapped_column(Identifier(64))
    expires_at: Mapped[datetime]


class InstanceFact(Base):
    """A fact about the whole instance: the master key's check value, the digest of the setup token."""

    __tablename__ = "instance_facts"

    name: Mapped[str] = mapped_column(Identifier(64), primary_key=True)
    value: Mapped[dict[str, Any]]
    updated_at: Mapped[datetime]


class RevocationReceipt(Tenant, Base):
    """One bulk revocation (public id ``rev_…``). Its cutoffs are stored where tokens are validated."""

    __tablename__ = "revocation_receipts"
    __table_args__ = (Index("ix_revocation_receipts_unsettled", "settled_at", "created_at"),)

    kind: Mapped[str] = mapped_column(
        Identifier(16), comment="grant, client, credential, user, session, organization"
    )
    subject: Mapped[str] = mapped_column(
        Identifier(64), comment="public id of the selected object, which may have been deleted since"
    )
    issued_before: Mapped[datetime] = mapped_column(comment="what was issued before is revoked")
    sessions: Mapped[bool] = mapped_column(comment="whether sessions were revoked too")
    reason: Mapped[str | None] = mapped_column(String(500))
    counts: Mapped[dict[str, Any]] = mapped_column(comment="number of active objects, each count capped")
    created_at: Mapped[datetime]
    created_by: Mapped[str | None] = mapped_column(String(200))
    created_by_id: Mapped[str | None] = mapped_column(Identifier(64), comment="public id of the requester")
    settled_at: Mapped[datetime | None] = mapped_column(
        comment="when the rows of revoked sessions were deleted and clients were notified"
    )
    expires_at: Mapped[datetime] = mapped_column(index=True, comment="kept as long as audit events")


class Webhook(Tenant, Base):
    """One endpoint (public id ``whk_…``)."""

    __tablename__ = "webhooks"

    url: Mapped[str] = mapped_column(String(2048))
    description: Mapped[str] = mapped_column(String(200))
    event_types: Mapped[list[str]] = mapped_column(comment="names, groups such as user.*, or *")
    status: Mapped[str] = mapped_column(Identifier(16), comment="enabled, disabled")
    disabled_because: Mapped[str | None] = mapped_column(
        Identifier(16), comment="person, failing, gone, backlog; NULL while it is enabled"
    )
    sealed_secret: Mapped[bytes | None] = mapped_column(
        Sealed, comment="signing secret; NULL after the webhook was deleted"
    )
    sealed_previous_secret: Mapped[bytes | None] = mapped_column(
        Sealed, comment="previous signing secret, also used until previous_secret_until"
    )
    previous_secret_until: Mapped[datetime | None]
    failing_since: Mapped[datetime | None] = mapped_column(comment="the first failure after the last success")
    version: Mapped[int]
    created_at: Mapped[datetime]
    created_by: Mapped[str | None] = mapped_column(String(200))
    updated_at: Mapped[datetime]
    deleted_at: Mapped[datetime | None] = mapped_column(
        index=True, comment="the row is deleted after its deliveries"
    )


class WebhookDelivery(Tenant, Base):
    """One event for one endpoint (public id ``dlv_…``, its ``webhook-id``) and its last attempt."""

    __tablename__ = "webhook_deliveries"
    __table_args__ = (
        Index("ix_webhook_deliveries_webhook", "organization_id", "webhook_id", "id"),
        within_organization("webhook_deliveries", "webhook_id", "webhooks"),
    )

    webhook_id: Mapped[UUID]
    message_id: Mapped[UUID] = mapped_column(comment="message of the outbox, which may have been deleted")
    event_type: Mapped[str] = mapped_column(Identifier(64))
    body: Mapped[dict[str, Any]]
    status: Mapped[str] = mapped_column(
        Identifier(16), comment="pending, delivered, failed; also pending if the outbox gave up"
    )
    attempts: Mapped[int]
    created_at: Mapped[datetime]
    attempted_at: Mapped[datetime | None]
    duration_ms: Mapped[int | None]
    response_status: Mapped[int | None] = mapped_column(comment="NULL without a complete response")
    response_headers: Mapped[dict[str, str] | None] = mapped_column(comment="some headers, truncated")
    failure: Mapped[str | None] = mapped_column(String(200), comment="why the last attempt failed")
    expires_at: Mapped[datetime] = mapped_column(index=True)
