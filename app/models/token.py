"""Access tokens, status lists, device codes, pushed authorization requests and signing keys."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ForeignKeyConstraint, Index, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import (
    Base,
    Digest,
    Identifier,
    Sealed,
    Tenant,
    within_organization,
)

PENDING, ALLOWED, DENIED = "pending", "allowed", "denied"
NEXT, ACTIVE, RETIRED = "next", "active", "retired"


class AccessToken(Tenant, Base):
    """An access token, opaque or JWT (public id ``tok_…``, the ``jti`` of a JWT).

    JWTs of some APIs have a row only once they are revoked or exchanged.
    """

    __tablename__ = "access_tokens"
    __table_args__ = (
        UniqueConstraint("organization_id", "digest"),
        Index("ix_access_tokens_client", "organization_id", "client_id", "credential_id", "expires_at"),
        Index("ix_access_tokens_grant", "organization_id", "grant_id"),
        within_organization("access_tokens", "client_id", "clients"),
        within_organization("access_tokens", "grant_id", "grants"),
        # One index serves both keys, and a token cannot refer to another client's secret. There is no separate key for
        # the organization, because the client's key covers it and each key costs a look-up per token.
        ForeignKeyConstraint(
            ["organization_id", "client_id", "credential_id"],
            ["client_credentials.organization_id", "client_credentials.client_id", "client_credentials.id"],
            name="fk_access_tokens_credential_id",
        ),
    )

    digest: Mapped[bytes] = mapped_column(Digest)
    client_id: Mapped[UUID]
    grant_id: Mapped[UUID | None] = mapped_column(comment="NULL for client_credentials, which have no user")
    credential_id: Mapped[UUID | None] = mapped_column(comment="secret that it was issued with")
    scope: Mapped[str] = mapped_column(String(4000))
    audience: Mapped[str] = mapped_column(
        String(3200), comment="resource indicators, space-separated (RFC 8707)"
    )
    dpop_jkt: Mapped[str | None] = mapped_column(
        Identifier(43), comment="thumbprint of the key it is bound to (RFC 9449 section 6)"
    )
    act: Mapped[dict[str, Any] | None] = mapped_column(
        comment="who acts for the subject (RFC 8693 section 4.1)"
    )
    parent_id: Mapped[UUID | None] = mapped_column(
        comment="token it was exchanged for (RFC 8693), and is revoked with"
    )
    issued_at: Mapped[datetime]
    expires_at: Mapped[datetime] = mapped_column(index=True)
    revoked_at: Mapped[datetime | None]


class StatusList(Tenant, Base):
    """A status list of JWT access tokens. One process gives out its indexes, from memory."""

    __tablename__ = "status_lists"

    created_at: Mapped[datetime]
    expires_at: Mapped[datetime] = mapped_column(index=True, comment="when no token in it can still be valid")


class StatusListEntry(Tenant, Base):
    """Consecutive indexes of a status list, for one token of a grant or several of a client.

    ``id`` is that of the token, if it is one. Whether the tokens are valid is not stored here: it follows from what
    they depend on. There are no foreign keys, because each costs a look-up per token.
    """

    __tablename__ = "status_list_entries"
    __table_args__ = (Index("ix_status_list_entries_list", "organization_id", "list_id"),)

    list_id: Mapped[UUID]
    first_index: Mapped[int] = mapped_column()
    indexes: Mapped[int] = mapped_column(comment="how many")
    client_id: Mapped[UUID]
    grant_id: Mapped[UUID | None]
    credential_id: Mapped[UUID | None]
    scope: Mapped[str] = mapped_column(String(4000))
    audience: Mapped[str] = mapped_column(String(3200))
    issued_at: Mapped[datetime] = mapped_column(comment="of several tokens, of the first one")
    expires_at: Mapped[datetime] = mapped_column(index=True)


class DeviceCode(Tenant, Base):
    """A device authorization (RFC 8628).

    It is kept for a day after it expires, so that a late poll gets the reason.
    """

    __tablename__ = "device_codes"
    __table_args__ = (
        UniqueConstraint("organization_id", "digest"),
        UniqueConstraint("organization_id", "user_code_digest"),
        Index("ix_device_codes_client", "organization_id", "client_id", "network", "expires_at"),
        Index("ix_device_codes_user", "organization_id", "user_id"),
        within_organization("device_codes", "client_id", "clients"),
        within_organization("device_codes", "user_id", "users"),
    )

    digest: Mapped[bytes] = mapped_column(Digest)
    user_code_digest: Mapped[bytes] = mapped_column(
        Digest, comment="keyed digest, because eight letters could be guessed"
    )
    client_id: Mapped[UUID]
    scope: Mapped[str] = mapped_column(
        String(4000), comment="requested scopes, after approval the allowed ones"
    )
    resource: Mapped[str] = mapped_column(
        String(3200), default="", comment="resource indicators, space-separated (RFC 8707)"
    )
    address: Mapped[str | None] = mapped_column(Identifier(64), comment="IP address of the device")
    network: Mapped[str] = mapped_column(Identifier(64), comment="network that rate limits count by")
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime] = mapped_column(index=True)
    interval_seconds: Mapped[int] = mapped_column(
        comment="seconds between two polls; increased by each slow_down"
    )
    next_poll_at: Mapped[datetime] = mapped_column(comment="time before which a poll is too early")
    state: Mapped[str] = mapped_column(Identifier(8), comment="pending, allowed, denied")
    shown_digest: Mapped[bytes | None] = mapped_column(
        Digest, comment="digest of what the consent page showed: session, client, scopes"
    )
    decided_at: Mapped[datetime | None]
    user_id: Mapped[UUID | None] = mapped_column(comment="user who approved it")
    auth_time: Mapped[datetime | None]
    amr: Mapped[str | None] = mapped_column(Identifier(64))
    acr: Mapped[str | None] = mapped_column(Identifier(128))
    grant_id: Mapped[UUID] = mapped_column(
        comment="chosen when the code is issued, stored when it is redeemed"
    )
    grant_ends_at: Mapped[datetime | None] = mapped_column(
        comment="expiry of the consent, and so of everything issued for the code"
    )
    used_at: Mapped[datetime | None]
    attempt: Mapped[UUID | None] = mapped_column(
        comment="attempt that claimed it, to distinguish a lost response from a second use"
    )


class PushedRequest(Tenant, Base):
    """A validated request behind a ``request_uri`` (RFC 9126).

    It is kept for a day after it expires, so that a slow sign-in can still complete it.
    """

    __tablename__ = "pushed_requests"
    __table_args__ = (
        UniqueConstraint("organization_id", "digest"),
        Index("ix_pushed_requests_client", "organization_id", "client_id", "network", "expires_at"),
        within_organization("pushed_requests", "client_id", "clients"),
    )

    digest: Mapped[bytes] = mapped_column(Digest)
    client_id: Mapped[UUID]
    network: Mapped[str] = mapped_column(Identifier(64), comment="network that rate limits count by")
    parameters: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime] = mapped_column(index=True, comment="until when a browser can use it")
    used_at: Mapped[datetime | None] = mapped_column(comment="when the request was answered")


class SigningKey(Tenant, Base):
    """A key pair. ``slot`` makes (organization, algorithm, active) and (…, next) unique (KY-2)."""

    __tablename__ = "signing_keys"
    __table_args__ = (
        UniqueConstraint("organization_id", "kid"),
        UniqueConstraint("organization_id", "algorithm", "slot"),
    )

    kid: Mapped[str] = mapped_column(Identifier(64), comment="RFC 7638 thumbprint")
    algorithm: Mapped[str] = mapped_column(Identifier(16), comment="RS256, PS256, ES256, EdDSA")
    state: Mapped[str] = mapped_column(Identifier(16), comment="next, active, retired")
    slot: Mapped[str | None] = mapped_column(
        Identifier(16), comment="the state, of which only one key can exist; NULL once retired"
    )
    public_jwk: Mapped[dict[str, Any]]
    sealed_private_key: Mapped[bytes] = mapped_column(
        Sealed, comment="PKCS 8, sealed with the organization's data key"
    )
    created_at: Mapped[datetime]
    activated_at: Mapped[datetime | None]
    retired_at: Mapped[datetime | None]
    remove_at: Mapped[datetime | None] = mapped_column(
        index=True, comment="when nothing it signed can still be valid"
    )
