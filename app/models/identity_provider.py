"""Identity providers of an organization, the accounts there that its users sign in with, and their SCIM tokens."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import Index, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import Base, Digest, Identifier, Sealed, Tenant, within_organization


class IdentityProvider(Tenant, Base):
    """An OpenID provider that users of the organization may sign in with (public id ``idp_…``)."""

    __tablename__ = "identity_providers"
    __table_args__ = (UniqueConstraint("organization_id", "slug"),)

    slug: Mapped[str] = mapped_column(Identifier(40), comment="its name in URLs, which never changes")
    name: Mapped[str] = mapped_column(String(60), comment="shown on the button to sign in")
    issuer: Mapped[str] = mapped_column(Identifier(255))
    client_id: Mapped[str] = mapped_column(Identifier(255), comment="of this organization at the provider")
    sealed_secret: Mapped[bytes] = mapped_column(Sealed, comment="client secret at the provider")
    scopes: Mapped[list[str]] = mapped_column(comment="scopes to request")
    create_users: Mapped[bool] = mapped_column(comment="whoever signs in first gets an account")
    link_users: Mapped[bool] = mapped_column(comment="whoever has a user's verified email becomes that user")
    trust_emails: Mapped[bool] = mapped_column(comment="emails without email_verified are verified")
    groups_claim: Mapped[str] = mapped_column(
        String(100), server_default="groups", comment="claim with the groups of a user there"
    )
    status: Mapped[str] = mapped_column(Identifier(16), comment="enabled, disabled")
    version: Mapped[int]
    created_at: Mapped[datetime]
    created_by: Mapped[str | None] = mapped_column(String(200))
    updated_at: Mapped[datetime]


class LinkedIdentity(Tenant, Base):
    """An account at an identity provider that signs a user in (public id ``idn_…``)."""

    __tablename__ = "linked_identities"
    __table_args__ = (
        UniqueConstraint("organization_id", "provider_id", "subject"),
        UniqueConstraint("organization_id", "user_id", "provider_id"),
        Index("ix_linked_identities_provider", "organization_id", "provider_id", "id"),
        within_organization("linked_identities", "provider_id", "identity_providers"),
        within_organization("linked_identities", "user_id", "users"),
    )

    provider_id: Mapped[UUID]
    user_id: Mapped[UUID]
    subject: Mapped[str] = mapped_column(Identifier(255), comment="sub of its ID tokens")
    email: Mapped[str | None] = mapped_column(String(254), comment="email there at the last sign-in")
    created_at: Mapped[datetime]
    last_used_at: Mapped[datetime | None]


class ProvisioningToken(Tenant, Base):
    """A token with which an identity provider creates and changes users and groups by SCIM (public id ``pvt_…``)."""

    __tablename__ = "provisioning_tokens"
    __table_args__ = (
        UniqueConstraint("organization_id", "digest"),
        Index("ix_provisioning_tokens_provider", "organization_id", "provider_id"),
        within_organization("provisioning_tokens", "provider_id", "identity_providers"),
    )

    provider_id: Mapped[UUID]
    digest: Mapped[bytes] = mapped_column(Digest)
    hint: Mapped[str] = mapped_column(Identifier(4), comment="last four characters of the random part")
    created_at: Mapped[datetime]
    created_by: Mapped[str | None] = mapped_column(String(200))
    last_used_at: Mapped[datetime | None] = mapped_column(comment="updated at most once a minute")
