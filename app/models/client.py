"""Clients with their secrets, registrations and logos; scopes and resources; approval requests."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ForeignKeyConstraint, Index, LargeBinary, String, UniqueConstraint
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
from app.rules.clients.client_types import PERSON

ACTIVE, DISABLED, DELETED = "active", "disabled", "deleted"
_IMAGE = LargeBinary().with_variant(mysql.MEDIUMBLOB(), "mysql", "mariadb")


class Client(Tenant, Base):
    """A client application. Its public ``client_id`` contains the organization's key and the row id."""

    __tablename__ = "clients"
    __table_args__ = (
        Index("ix_clients_name", "organization_id", "name_key", "id"),
        Index("ix_clients_owner", "organization_id", "created_by_user_id", "id"),
    )

    name: Mapped[str] = mapped_column(String(200))
    name_key: Mapped[str] = mapped_column(Identifier(400), comment="case-folded name, for order and search")
    type: Mapped[str] = mapped_column(Identifier(16), comment="web, spa, native, machine, device")
    status: Mapped[str] = mapped_column(Identifier(16), default=ACTIVE, comment="active, disabled, deleted")
    trust: Mapped[str] = mapped_column(
        Identifier(16), default="unverified", comment="first_party, verified, unverified"
    )
    source: Mapped[str] = mapped_column(
        Identifier(24), default=PERSON, comment="person, dynamic, metadata_document: who registered it"
    )
    metadata_document_uri: Mapped[str | None] = mapped_column(
        Identifier(500),
        comment="client_id of a client that is identified by the URL of its metadata document",
    )
    document: Mapped[dict[str, Any]] = mapped_column(
        comment="client metadata (RFC 7591 names), as rules/client_metadata completed it"
    )
    version: Mapped[int] = mapped_column(
        default=1, comment="incremented by each change of the client or its credentials"
    )
    created_at: Mapped[datetime]
    created_by: Mapped[str | None] = mapped_column(String(200))
    owner_id: Mapped[UUID | None] = mapped_column(
        "created_by_user_id",
        comment="may be a root user, hence no foreign key",
    )
    updated_at: Mapped[datetime]
    last_used_at: Mapped[datetime | None] = mapped_column(comment="sampled")
    pkce_used_at: Mapped[datetime | None] = mapped_column(
        comment="when it last redeemed a code with PKCE, sampled"
    )
    pkce_omitted_at: Mapped[datetime | None] = mapped_column(
        comment="when it last redeemed a code without PKCE, sampled"
    )
    tokens_not_before: Mapped[datetime | None] = mapped_column(
        comment="what was issued before is revoked; a revocation only moves it forward"
    )
    deleted_at: Mapped[datetime | None] = mapped_column(index=True)


class Scope(Tenant, Base):
    """A scope that clients of the organization can request, with the texts of the consent page."""

    __tablename__ = "scopes"
    __table_args__ = (
        UniqueConstraint("organization_id", "name"),
        Index("ix_scopes_resource", "organization_id", "resource_id"),
        within_organization("scopes", "resource_id", "resources"),
    )

    name: Mapped[str] = mapped_column(Identifier(128))
    title: Mapped[str | None] = mapped_column(
        String(200), comment="title on the consent page; NULL until one is entered"
    )
    description: Mapped[str | None] = mapped_column(String(1000))
    is_identity: Mapped[bool] = mapped_column(
        default=False, comment="whether it is a scope of OpenID Connect"
    )
    resource_id: Mapped[UUID | None] = mapped_column(
        comment="API that the scope belongs to; NULL: no particular one"
    )
    version: Mapped[int] = mapped_column(default=1, comment="incremented by each change of its texts")
    created_at: Mapped[datetime]
    created_by: Mapped[str | None] = mapped_column(String(200))


class ClientRequest(Tenant, Base):
    """A user's request to approve a client (public id ``crq_…``). One per user and client can be open."""

    __tablename__ = "client_requests"
    __table_args__ = (
        # Unique keys ignore NULL, so any number of decided requests can exist.
        UniqueConstraint("organization_id", "client_id", "user_id", "is_open"),
        Index("ix_client_requests_status", "organization_id", "status", "id"),
        Index("ix_client_requests_user", "organization_id", "user_id"),
        within_organization("client_requests", "client_id", "clients"),
        within_organization("client_requests", "user_id", "users"),
    )

    client_id: Mapped[UUID]
    user_id: Mapped[UUID] = mapped_column(comment="requesting member")
    is_open: Mapped[bool | None] = mapped_column(comment="true while it is undecided, then NULL")
    status: Mapped[str] = mapped_column(Identifier(16), comment="open, approved, declined")
    scope: Mapped[str] = mapped_column(
        String(4000), comment="scopes that the client requested, space-separated"
    )
    reason: Mapped[str] = mapped_column(String(300), comment="message of the member")
    created_at: Mapped[datetime]
    decided_at: Mapped[datetime | None]
    decided_by: Mapped[str | None] = mapped_column(String(200))
    message: Mapped[str | None] = mapped_column(
        String(300), comment="message of the administrator to the member"
    )
    expires_at: Mapped[datetime] = mapped_column(index=True)


class RegistrationToken(Tenant, Base):
    """An initial access token (RFC 7591 section 3), which lets its holder register clients."""

    __tablename__ = "registration_tokens"
    __table_args__ = (UniqueConstraint("organization_id", "digest"),)

    digest: Mapped[bytes] = mapped_column(Digest)
    name: Mapped[str] = mapped_column(String(200))
    hint: Mapped[str] = mapped_column(Identifier(4), comment="last four characters of the random part")
    max_uses: Mapped[int | None] = mapped_column(
        comment="NULL: limited only by the organization's number of clients"
    )
    uses: Mapped[int] = mapped_column(default=0)
    created_at: Mapped[datetime]
    created_by: Mapped[str | None] = mapped_column(String(200))
    expires_at: Mapped[datetime] = mapped_column(index=True)
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]


class ClientRegistration(Tenant, Base):
    """Data of a self-registered client. ``id`` is the client's.

    For dynamic registration that is the digest of its registration access token (RFC 7592), for a metadata
    document the digest of its URL and when the copy expires.
    """

    __tablename__ = "client_registrations"
    __table_args__ = (
        UniqueConstraint("organization_id", "address_digest"),
        Index("ix_client_registrations_idle", "idle_check_at"),
        Index("ix_client_registrations_access", "organization_id", "access_digest"),
        ForeignKeyConstraint(
            ["organization_id", "id"],
            ["clients.organization_id", "clients.id"],
            name="fk_client_registrations_client",
        ),
    )

    access_digest: Mapped[bytes | None] = mapped_column(Digest, comment="registration access token")
    registration_token_id: Mapped[UUID | None] = mapped_column(
        comment="initial access token, which may have been deleted"
    )
    address_digest: Mapped[bytes | None] = mapped_column(
        Digest, comment="digest of the document's URL; NULL after the client was deleted"
    )
    fetched_at: Mapped[datetime | None] = mapped_column(comment="when the document was last read")
    fresh_until: Mapped[datetime | None]
    idle_check_at: Mapped[datetime | None] = mapped_column(
        comment="when to check whether it is still used; NULL after it was deleted"
    )


class ClientLogo(Tenant, Base):
    """The logo from a client's ``logo_uri``. ``id`` is the client's."""

    __tablename__ = "client_logos"
    __table_args__ = (
        ForeignKeyConstraint(
            ["organization_id", "id"],
            ["clients.organization_id", "clients.id"],
            name="fk_client_logos_client",
        ),
    )

    source_digest: Mapped[bytes] = mapped_column(
        Digest, comment="digest of the logo_uri that it was fetched from"
    )
    digest: Mapped[bytes] = mapped_column(Digest, comment="digest of the image, which is its name in URLs")
    picture: Mapped[bytes] = mapped_column(_IMAGE, comment="re-encoded PNG, at most 256x256")
    fetched_at: Mapped[datetime]


class OrganizationLogo(Tenant, Base):
    """The logo in the organization's ``branding.logo`` setting. There is a row while the setting is set."""

    __tablename__ = "organization_logos"
    __table_args__ = (UniqueConstraint("organization_id", "digest"),)

    digest: Mapped[bytes] = mapped_column(Digest, comment="digest of the image, which is its name in URLs")
    picture: Mapped[bytes] = mapped_column(_IMAGE, comment="re-encoded PNG, at most 256x256")
    created_at: Mapped[datetime]


class Resource(Tenant, Base):
    """An API (public id ``res_…``)."""

    __tablename__ = "resources"
    __table_args__ = (
        UniqueConstraint("organization_id", "identifier"),
        Index("ix_resources_name", "organization_id", "name_key", "id"),
    )

    identifier: Mapped[str] = mapped_column(
        Identifier(255),
        comment="resource indicator: an absolute URI, the audience of its tokens; never changed",
    )
    name: Mapped[str] = mapped_column(String(200))
    name_key: Mapped[str] = mapped_column(Identifier(400), comment="case-folded name, for order and search")
    description: Mapped[str] = mapped_column(String(1000))
    access_token_format: Mapped[str | None] = mapped_column(
        Identifier(16), comment="opaque or jwt; NULL: the client's or organization's default"
    )
    access_token_ttl_seconds: Mapped[int | None] = mapped_column(comment="NULL: the organization's default")
    access_token_storage: Mapped[str] = mapped_column(
        Identifier(16), default="stored", comment="stored, status_list, none: how JWT access tokens are kept"
    )
    status: Mapped[str] = mapped_column(Identifier(16), default=ACTIVE, comment="active, disabled")
    access_policy: Mapped[str] = mapped_column(
        Identifier(16), default="approval", comment="open, approval, listed: which clients get tokens"
    )
    version: Mapped[int] = mapped_column(
        default=1, comment="incremented by each change of the API or its scopes"
    )
    created_at: Mapped[datetime]
    created_by: Mapped[str | None] = mapped_column(String(200))
    owner_id: Mapped[UUID | None] = mapped_column(
        "created_by_user_id",
        comment="may be a root user, hence no foreign key",
    )
    updated_at: Mapped[datetime]


class ClientAccess(Tenant, Base):
    """A client's access to an API, or a request for it (public id ``acc_…``).

    A client and an API have at most one row of each status: the access, the pending request, the last rejection and
    the last withdrawal.
    """

    __tablename__ = "client_access"
    __table_args__ = (
        UniqueConstraint("organization_id", "client_id", "resource_id", "status"),
        Index("ix_client_access_resource", "organization_id", "resource_id", "id"),
        Index("ix_client_access_status", "organization_id", "status", "id"),
        within_organization("client_access", "client_id", "clients"),
        within_organization("client_access", "resource_id", "resources"),
    )

    client_id: Mapped[UUID]
    resource_id: Mapped[UUID]
    status: Mapped[str] = mapped_column(Identifier(16), comment="requested, granted, declined, withdrawn")
    scopes: Mapped[list[str]] = mapped_column(comment="names of the API's scopes, possibly none")
    reason: Mapped[str | None] = mapped_column(String(300), comment="why the developer requests it")
    message: Mapped[str | None] = mapped_column(String(300), comment="message to the developer")
    created_at: Mapped[datetime]
    created_by: Mapped[str | None] = mapped_column(String(200))
    created_by_user_id: Mapped[UUID | None] = mapped_column(
        comment="may be a root user, hence no foreign key"
    )
    decided_at: Mapped[datetime | None] = mapped_column(
        comment="after a withdrawal: tokens issued before are revoked"
    )
    decided_by: Mapped[str | None] = mapped_column(String(200))


class Credential(Tenant, Base):
    """A client secret (public id ``sec_…``)."""

    __tablename__ = "client_credentials"
    __table_args__ = (
        UniqueConstraint("organization_id", "digest"),
        UniqueConstraint("organization_id", "client_id", "id"),
        within_organization("client_credentials", "client_id", "clients"),
    )

    client_id: Mapped[UUID]
    name: Mapped[str] = mapped_column(String(100))
    digest: Mapped[bytes] = mapped_column(Digest)
    hint: Mapped[str] = mapped_column(Identifier(8), comment="last four characters")
    sealed: Mapped[bytes | None] = mapped_column(
        Sealed, comment="NULL where the organization shows secrets once"
    )
    created_at: Mapped[datetime]
    created_by: Mapped[str | None] = mapped_column(String(200))
    expires_at: Mapped[datetime | None] = mapped_column(index=True)
    retiring_since: Mapped[datetime | None] = mapped_column(comment="set by a rotation that may be cancelled")
    previous_expires_at: Mapped[datetime | None] = mapped_column(
        comment="expiry that cancelling the rotation restores"
    )
    takes_tokens: Mapped[bool] = mapped_column(
        default=False, comment="whether its tokens are revoked when it expires"
    )
    notified_at: Mapped[datetime | None] = mapped_column(
        comment="when its owners were notified that it expires while it is used"
    )
    revoked_at: Mapped[datetime | None] = mapped_column(index=True)
    revoked_by: Mapped[str | None] = mapped_column(String(200))
    tokens_revoked_at: Mapped[datetime | None] = mapped_column(
        comment="set if no token issued with it is active"
    )
    tokens_not_before: Mapped[datetime | None] = mapped_column(
        comment="tokens issued with it before are revoked; a revocation only moves it forward"
    )
    confirmed_at: Mapped[datetime | None] = mapped_column(
        comment="when a secret from before a restore was confirmed"
    )
    first_used_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None] = mapped_column(comment="sampled")
    last_used_address: Mapped[str | None] = mapped_column(Identifier(64))


class CredentialUse(Tenant, Base):
    """An IP address that a secret was used from.

    Sampled with at most one write a minute, and kept for 30 days.
    """

    __tablename__ = "credential_uses"
    __table_args__ = (
        UniqueConstraint("organization_id", "credential_id", "address"),
        within_organization("credential_uses", "credential_id", "client_credentials"),
    )

    credential_id: Mapped[UUID]
    address: Mapped[str] = mapped_column(Identifier(64))
    last_used_at: Mapped[datetime]
    expires_at: Mapped[datetime] = mapped_column(index=True)
