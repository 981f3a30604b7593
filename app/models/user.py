"""People of an organization, their roles and the invitations that bring them in."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ForeignKeyConstraint, Index, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import Base, Digest, Identifier, Json, Tenant, UtcDateTime, Uuid, owned_by_organization
from app.rules.identifiers import ROUTING_KEY_LENGTH

ACTIVE, DISABLED, DELETED = "active", "disabled", "deleted"


class User(Tenant, Base):
    """A person in one organization; the same e-mail in another organization is somebody else."""

    __tablename__ = "users"
    __table_args__ = (
        UniqueConstraint("organization_id", "email_canonical"),
        Index("ix_users_password_scheme", "organization_id", "password_scheme"),
        owned_by_organization("users"),
        Base.__table_args__,
    )

    email: Mapped[str] = mapped_column(String(320), comment="as typed")
    email_canonical: Mapped[str] = mapped_column(
        Identifier(320), comment="what two spellings of one address share"
    )
    email_verified: Mapped[bool] = mapped_column(default=False)
    made_unproven: Mapped[bool] = mapped_column(
        default=False,
        comment="made by whoever typed the address: what was set up in it ends when a mailed link proves that address",
    )
    name: Mapped[str] = mapped_column(String(200), default="")
    profile: Mapped[dict[str, Any]] = mapped_column(
        Json, default=dict, comment="standard claims beside name and e-mail"
    )
    password_hash: Mapped[str | None] = mapped_column(
        String(255), comment="argon2id, or as another system made it"
    )
    password_scheme: Mapped[str | None] = mapped_column(
        Identifier(40), comment="kind and cost of another system's hash, NULL once it is ours"
    )
    password_changed_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    status: Mapped[str] = mapped_column(Identifier(16), default=ACTIVE, comment="active, disabled, deleted")
    version: Mapped[int] = mapped_column(default=1)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)
    last_sign_in_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    tokens_not_before: Mapped[datetime | None] = mapped_column(
        UtcDateTime, comment="what was issued before is dead: set by a revocation, never set back"
    )


class RoleAssignment(Tenant, Base):
    """A role of a user in an organization; the user belongs to it or to root. Its public id is ``adm_…``."""

    __tablename__ = "role_assignments"
    __table_args__ = (
        UniqueConstraint(
            "organization_id", "user_organization_id", "user_id", "role", name="uq_role_assignments_once"
        ),  # a name that MySQL's 64 characters can hold
        Index("ix_role_assignments_user", "user_organization_id", "user_id"),
        owned_by_organization("role_assignments"),
        ForeignKeyConstraint(
            ["user_organization_id", "user_id"],
            ["users.organization_id", "users.id"],
            name="fk_role_assignments_user",
        ),
        Base.__table_args__,
    )

    user_organization_id: Mapped[str] = mapped_column(
        Identifier(ROUTING_KEY_LENGTH), comment="the same organization, or root's"
    )
    user_id: Mapped[UUID] = mapped_column(Uuid)
    role: Mapped[str] = mapped_column(
        Identifier(64), comment="admin, developer, auditor, member or a custom one"
    )
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    created_by: Mapped[str | None] = mapped_column(String(200))


class Invitation(Tenant, Base):
    """A link that lets its holder become a user with a role; used once."""

    __tablename__ = "invitations"
    __table_args__ = (
        UniqueConstraint("organization_id", "digest"),
        Index("ix_invitations_email", "organization_id", "email_canonical"),
        owned_by_organization("invitations"),
        Base.__table_args__,
    )

    digest: Mapped[bytes] = mapped_column(Digest)
    email: Mapped[str] = mapped_column(String(320))
    email_canonical: Mapped[str] = mapped_column(Identifier(320))
    name: Mapped[str] = mapped_column(String(200), default="")
    role: Mapped[str] = mapped_column(Identifier(64))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    created_by: Mapped[str | None] = mapped_column(String(200))
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    is_mailed: Mapped[bool] = mapped_column(
        default=False, comment="its link went to the mailbox alone, so whoever holds it reads that mailbox"
    )
    used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    revoked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
