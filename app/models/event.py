"""Outbox, revocations, cache invalidation, idempotency keys, single-use identifiers, leases and instance facts."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Index, LargeBinary, String
from sqlalchemy.dialects import mysql
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import (
    Base,
    Digest,
    Identifier,
    Json,
    Sealed,
    Tenant,
    UtcDateTime,
    Uuid,
    owned_by_organization,
)
from app.rules.identifiers import ROUTING_KEY_LENGTH


class OutboxMessage(Tenant, Base):
    """A message that leaves the process after the change it belongs to was committed."""

    __tablename__ = "outbox"
    __table_args__ = (
        Index("ix_outbox_due", "done_at", "available_at"),
        Index("ix_outbox_receiver", "organization_id", "receiver", "done_at"),
        owned_by_organization("outbox"),
        Base.__table_args__,
    )

    kind: Mapped[str] = mapped_column(Identifier(64))
    receiver: Mapped[str] = mapped_column(
        Identifier(64), comment="public id of who gets it: one that does not answer is left alone for a while"
    )
    payload: Mapped[dict[str, Any]] = mapped_column(Json)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    available_at: Mapped[datetime] = mapped_column(
        UtcDateTime, comment="when it is tried next; while it is being delivered, the end of that lease"
    )
    attempts: Mapped[int] = mapped_column(default=0)
    done_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    outcome: Mapped[str | None] = mapped_column(Identifier(16), comment="delivered, refused, given_up")
    expires_at: Mapped[datetime] = mapped_column(
        UtcDateTime, index=True, comment="when nobody tries any more"
    )


class Revocation(Tenant, Base):
    """One revocation, written in its transaction, for verifiers that have no access to the database tables."""

    __tablename__ = "revocation_log"
    __table_args__ = (owned_by_organization("revocation_log"), Base.__table_args__)

    kind: Mapped[str] = mapped_column(
        Identifier(16), comment="token, grant, client, credential, user, organization"
    )
    subject: Mapped[bytes] = mapped_column(
        LargeBinary(32).with_variant(mysql.VARBINARY(32), "mysql", "mariadb"),
        comment="row id, or the organization's key",
    )
    not_before: Mapped[datetime] = mapped_column(UtcDateTime, comment="what was issued before is dead")
    expires_at: Mapped[datetime] = mapped_column(
        UtcDateTime, index=True, comment="when nothing it names can still be alive"
    )


class IdempotencyKey(Base):
    """The response to a POST with an Idempotency-Key, without secrets, for 24 hours."""

    __tablename__ = "idempotency_keys"
    __table_args__ = (owned_by_organization("idempotency_keys"), Base.__table_args__)

    organization_id: Mapped[str] = mapped_column(Identifier(ROUTING_KEY_LENGTH), primary_key=True)
    key_digest: Mapped[bytes] = mapped_column(Digest, primary_key=True, comment="key, caller and route")
    body_digest: Mapped[bytes] = mapped_column(Digest)
    status: Mapped[int | None] = mapped_column(comment="NULL while the first one is under way")
    response: Mapped[bytes | None] = mapped_column(Sealed)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)


class CacheInvalidation(Tenant, Base):
    """A change that invalidates cached snapshots of every worker. All workers read it within seconds."""

    __tablename__ = "view_changes"
    __table_args__ = (owned_by_organization("view_changes"), Base.__table_args__)

    at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    is_for_all: Mapped[bool] = mapped_column(
        default=False, comment="it concerns every organization, not this one alone"
    )


class UsedIdentifier(Base):
    """An identifier that may be used once, such as the ``jti`` of a client assertion or DPoP proof, until it would have
    expired.
    """

    __tablename__ = "used_identifiers"
    __table_args__ = (owned_by_organization("used_identifiers"), Base.__table_args__)

    organization_id: Mapped[str] = mapped_column(Identifier(ROUTING_KEY_LENGTH), primary_key=True)
    digest: Mapped[bytes] = mapped_column(Digest, primary_key=True, comment="purpose, whose it is, and value")
    attempt: Mapped[UUID] = mapped_column(
        Uuid, comment="which attempt wrote it: tells a lost answer from a replay"
    )
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)


class Lease(Base):
    """The holder of a job that only one process may run, taken by compare-and-set on ``holder`` and ``expires_at``."""

    __tablename__ = "leases"

    name: Mapped[str] = mapped_column(Identifier(64), primary_key=True)
    holder: Mapped[str] = mapped_column(Identifier(64))
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)


class InstanceFact(Base):
    """A fact about the whole instance: the master key's check value, the digest of the setup token."""

    __tablename__ = "instance_facts"

    name: Mapped[str] = mapped_column(Identifier(64), primary_key=True)
    value: Mapped[dict[str, Any]] = mapped_column(Json)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)


class RevocationReceipt(Tenant, Base):
    """One bulk revocation (public id ``rev_…``). Its cutoffs are stored where tokens are validated."""

    __tablename__ = "revocation_receipts"
    __table_args__ = (
        Index("ix_revocation_receipts_unsettled", "settled_at", "created_at"),
        owned_by_organization("revocation_receipts"),
        Base.__table_args__,
    )

    kind: Mapped[str] = mapped_column(
        Identifier(16), comment="grant, client, credential, user, session, organization"
    )
    subject: Mapped[str] = mapped_column(
        Identifier(64), comment="public id of what was selected, which may be gone since"
    )
    issued_before: Mapped[datetime] = mapped_column(UtcDateTime, comment="what was issued before is dead")
    sessions: Mapped[bool] = mapped_column(comment="sign-ins ended, too")
    reason: Mapped[str | None] = mapped_column(String(500))
    counts: Mapped[dict[str, Any]] = mapped_column(Json, comment="what was alive, each count cut off")
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    created_by: Mapped[str | None] = mapped_column(String(200))
    created_by_id: Mapped[str | None] = mapped_column(Identifier(64), comment="public id of who asked")
    settled_at: Mapped[datetime | None] = mapped_column(
        UtcDateTime, comment="when the rows of sign-ins that it ended were cleared and clients were told"
    )
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True, comment="as long as audit events")
