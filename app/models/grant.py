"""Consents, authorization requests in progress, authorization codes, and grants."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Index, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import (
    Base,
    Digest,
    Identifier,
    Sealed,
    Tenant,
    within_organization,
)


class Consent(Tenant, Base):
    """The scopes that a user allowed a client, until withdrawn (public id ``con_…``)."""

    __tablename__ = "consents"
    __table_args__ = (
        UniqueConstraint("organization_id", "user_id", "client_id"),
        Index("ix_consents_client", "organization_id", "client_id"),
        within_organization("consents", "user_id", "users"),
        within_organization("consents", "client_id", "clients"),
    )

    user_id: Mapped[UUID]
    client_id: Mapped[UUID]
    scope: Mapped[str] = mapped_column(String(4000), comment="allowed scopes, space-separated")
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None] = mapped_column(comment="sampled")
    shown: Mapped[dict[str, Any] | None] = mapped_column(
        comment="metadata of the client at that time: its name, and digests of the rest"
    )
    declined: Mapped[str | None] = mapped_column(
        String(4000), comment="optional scopes that the user declined, space-separated"
    )


class AuthorizationRequest(Tenant, Base):
    """A validated authorization request during sign-in and consent (IN-1, IN-2)."""

    __tablename__ = "authorization_requests"
    __table_args__ = (
        UniqueConstraint("organization_id", "digest"),
        Index(
            "ix_authorization_requests_client",
            *("organization_id", "client_id", "network", "completed_at", "expires_at"),
        ),
        Index("ix_authorization_requests_browser", "organization_id", "browser_digest"),
        within_organization("authorization_requests", "client_id", "clients"),
    )

    digest: Mapped[bytes] = mapped_column(Digest)
    browser_digest: Mapped[bytes] = mapped_column(Digest, comment="browser that started it")
    client_id: Mapped[UUID]
    network: Mapped[str] = mapped_column(Identifier(64), comment="network that rate limits count by")
    parameters: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime] = mapped_column(index=True)
    shown_digest: Mapped[bytes | None] = mapped_column(
        Digest, comment="digest of what the consent page showed: user, client, scopes"
    )
    selected_session_id: Mapped[UUID | None] = mapped_column(
        comment="session chosen for prompt=select_account"
    )
    pushed_request_id: Mapped[UUID | None] = mapped_column(
        comment="pushed request, used up with this one; it may have been deleted, hence no foreign key"
    )
    completed_at: Mapped[datetime | None]


class PlaygroundRun(Tenant, Base):
    """One try of a client in the portal's playground by one user in one browser (public id ``plr_…``)."""

    __tablename__ = "playground_runs"
    __table_args__ = (
        UniqueConstraint("organization_id", "state_digest"),
        Index("ix_playground_runs_client", "organization_id", "client_id"),
        Index("ix_playground_runs_user", "organization_id", "user_id"),
        within_organization("playground_runs", "client_id", "clients"),
    )

    state_digest: Mapped[bytes] = mapped_column(
        Digest, comment="digest of the state in its authorization request"
    )
    browser_digest: Mapped[bytes] = mapped_column(Digest, comment="browser that started it")
    user_id: Mapped[UUID] = mapped_column(
        comment="user who started it; users of root belong to another organization, hence no foreign key"
    )
    client_id: Mapped[UUID]
    sealed: Mapped[bytes] = mapped_column(Sealed, comment="choices, verifier, requests and responses")
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime] = mapped_column(index=True)
    redeemed_at: Mapped[datetime | None] = mapped_column(comment="from then on its state is invalid")


class AuthorizationCode(Tenant, Base):
    """An authorization code. It is kept for a day after its use to detect a replay (CD-7)."""

    __tablename__ = "authorization_codes"
    __table_args__ = (
        UniqueConstraint("organization_id", "digest"),
        Index("ix_authorization_codes_client", "organization_id", "client_id"),
        Index("ix_authorization_codes_user", "organization_id", "user_id"),
        within_organization("authorization_codes", "client_id", "clients"),
        within_organization("authorization_codes", "user_id", "users"),
    )

    digest: Mapped[bytes] = mapped_column(Digest)
    client_id: Mapped[UUID]
    user_id: Mapped[UUID]
    session_id: Mapped[UUID | None] = mapped_column(comment="outlives the session row, hence no foreign key")
    grant_id: Mapped[UUID] = mapped_column(
        comment="chosen when the code is issued, stored when it is redeemed; a replay revokes it"
    )
    redirect_uri: Mapped[str] = mapped_column(String(2048))
    scope: Mapped[str] = mapped_column(String(4000))
    nonce: Mapped[str | None] = mapped_column(String(2048))
    code_challenge: Mapped[str | None] = mapped_column(
        Identifier(43), comment="S256 (RFC 7636); NULL without PKCE"
    )
    auth_time: Mapped[datetime]
    amr: Mapped[str] = mapped_column(Identifier(64))
    acr: Mapped[str | None] = mapped_column(
        Identifier(128), comment="authentication context class of the sign-in"
    )
    resource: Mapped[str] = mapped_column(
        String(3200), default="", comment="resource indicators allowed, space-separated (RFC 8707)"
    )
    claims: Mapped[dict[str, Any] | None] = mapped_column(
        comment="the claims parameter, as understood (OIDC Core 5.5)"
    )
    dpop_jkt: Mapped[str | None] = mapped_column(
        Identifier(43), comment="thumbprint of the key that must redeem it (RFC 9449 section 10)"
    )
    issued_at: Mapped[datetime]
    expires_at: Mapped[datetime]
    grant_ends_at: Mapped[datetime | None] = mapped_column(
        comment="expiry of the consent, and so of everything issued for the code"
    )
    used_at: Mapped[datetime | None]
    attempt: Mapped[UUID | None] = mapped_column(
        comment="attempt that claimed it, to distinguish a lost response from theft"
    )
    purge_at: Mapped[datetime] = mapped_column(index=True)


class Grant(Tenant, Base):
    """A user's authorization of a client, which rotation and revocation are decided on.

    A token is valid only while its grant is. Rotation is one compare-and-set on this row.
    """

    __tablename__ = "grants"
    __table_args__ = (
        # For the foreign key: when an UPDATE changes a column of its index, MariaDB checks it again and locks the user.
        Index("ix_grants_user", "organization_id", "user_id"),
        Index("ix_grants_active", "organization_id", "user_id", "client_id", "revoked_at", "expires_at"),
        Index("ix_grants_client", "organization_id", "client_id"),
        Index("ix_grants_session", "organization_id", "session_id"),
        within_organization("grants", "client_id", "clients"),
        within_organization("grants", "user_id", "users"),
    )

    client_id: Mapped[UUID]
    user_id: Mapped[UUID]
    session_id: Mapped[UUID | None] = mapped_column(comment="outlives the session row, hence no foreign key")
    scope: Mapped[str] = mapped_column(String(4000))
    auth_time: Mapped[datetime]
    amr: Mapped[str] = mapped_column(Identifier(64))
    acr: Mapped[str | None] = mapped_column(Identifier(128))
    resource: Mapped[str] = mapped_column(
        String(3200), default="", comment="resource indicators allowed, space-separated (RFC 8707)"
    )
    claims: Mapped[dict[str, Any] | None] = mapped_column(
        comment="the claims parameter, as understood (OIDC Core 5.5)"
    )
    dpop_jkt: Mapped[str | None] = mapped_column(
        Identifier(43), comment="the key that its refresh tokens are bound to (RFC 9449 section 5)"
    )
    credential_id: Mapped[UUID | None] = mapped_column(
        comment="secret that the code was redeemed with; no foreign key, because it may have been deleted"
    )
    created_at: Mapped[datetime]
    allowed_at: Mapped[datetime] = mapped_column(
        comment="when the code was issued or the device approved; cutoffs are compared with it"
    )
    expires_at: Mapped[datetime] = mapped_column(
        index=True, comment="absolute expiry; rotation never extends it"
    )
    idle_expires_at: Mapped[datetime | None] = mapped_column(comment="expiry of the current refresh token")
    refreshed_at: Mapped[datetime | None] = mapped_column(
        comment="last use of the refresh token; NULL without one, and for older rows"
    )
    generation: Mapped[int] = mapped_column(default=0, comment="how often it was rotated")
    refresh_digest: Mapped[bytes | None] = mapped_column(
        Digest, comment="the current refresh token; NULL without one"
    )
    previous_digest: Mapped[bytes | None] = mapped_column(Digest, comment="previous refresh token")
    rotated_at: Mapped[datetime | None]
    sealed_answer: Mapped[bytes | None] = mapped_column(
        Sealed, comment="last response, sealed with the presented token (RF-3)"
    )
    revoked_at: Mapped[datetime | None]
    revoked_reason: Mapped[str | None] = mapped_column(Identifier(64))
