"""Users of an organization, their roles, invitations, account links, registrations and imports."""

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
    Json,
    Sealed,
    Tenant,
    within_organization,
)
from app.rules.identifiers import ROUTING_KEY_LENGTH

ACTIVE, DISABLED, DELETED = "active", "disabled", "deleted"
UPLOADING, CHECKING, CHECKED, RUNNING = "uploading", "checking", "checked", "running"
DONE, CANCELLED, FAILED = "done", "cancelled", "failed"
IN_PROGRESS = (CHECKING, RUNNING)
UNFINISHED = (UPLOADING, CHECKING, CHECKED, RUNNING)


class User(Tenant, Base):
    """A user of one organization. The same email in another organization is a different user."""

    __tablename__ = "users"
    __table_args__ = (
        UniqueConstraint("organization_id", "email_canonical"),
        Index("ix_users_password_scheme", "organization_id", "password_scheme"),
        Index("ix_users_external_id", "organization_id", "provisioned_by", "external_id", unique=True),
        Index("ix_users_user_name", "organization_id", "provisioned_by", "user_name", unique=True),
    )

    email: Mapped[str] = mapped_column(String(320), comment="as typed")
    email_canonical: Mapped[str] = mapped_column(
        Identifier(320), comment="canonical form of the email, equal for all of its spellings"
    )
    email_verified: Mapped[bool] = mapped_column(default=False)
    made_unproven: Mapped[bool] = mapped_column(
        default=False, comment="email not verified yet: verifying it removes what was set up before"
    )
    name: Mapped[str] = mapped_column(String(200), default="")
    profile: Mapped[dict[str, Any]] = mapped_column(
        default=dict, comment="standard claims besides name and email"
    )
    attributes: Mapped[dict[str, Any] | None] = mapped_column(
        comment="values of the organization's custom attributes by key"
    )
    password_hash: Mapped[str | None] = mapped_column(
        String(255), comment="argon2id, or the hash of another system"
    )
    password_scheme: Mapped[str | None] = mapped_column(
        Identifier(40), comment="kind and cost of another system's hash; NULL once it was replaced"
    )
    password_changed_at: Mapped[datetime | None]
    status: Mapped[str] = mapped_column(Identifier(16), default=ACTIVE, comment="active, disabled, deleted")
    version: Mapped[int] = mapped_column(default=1)
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    last_sign_in_at: Mapped[datetime | None]
    tokens_not_before: Mapped[datetime | None] = mapped_column(
        comment="what was issued before is revoked; a revocation only moves it forward"
    )
    provisioned_by: Mapped[UUID | None] = mapped_column(
        comment="identity provider that manages the user by SCIM; no foreign key, because it may exist longer"
    )
    external_id: Mapped[str | None] = mapped_column(Identifier(255), comment="its name for the user")
    user_name: Mapped[str | None] = mapped_column(
        Identifier(320), comment="userName there in lower case, unless it is the email"
    )


class RoleAssignment(Tenant, Base):
    """A role of a user in an organization. The user belongs to it or to root. The public id is ``adm_…``."""

    __tablename__ = "role_assignments"
    __table_args__ = (
        UniqueConstraint(
            "organization_id", "user_organization_id", "user_id", "role", name="uq_role_assignments_once"
        ),  # a name that MySQL's 64 characters can hold
        Index("ix_role_assignments_user", "user_organization_id", "user_id"),
        Index("ix_role_assignments_role", "organization_id", "role", "id"),
        ForeignKeyConstraint(
            ["user_organization_id", "user_id"],
            ["users.organization_id", "users.id"],
            name="fk_role_assignments_user",
        ),
    )

    user_organization_id: Mapped[str] = mapped_column(
        Identifier(ROUTING_KEY_LENGTH), comment="the same organization, or root's"
    )
    user_id: Mapped[UUID]
    role: Mapped[str] = mapped_column(
        Identifier(64), comment="admin, developer, auditor, member or a custom one"
    )
    created_at: Mapped[datetime]
    created_by: Mapped[str | None] = mapped_column(String(200))


class Group(Tenant, Base):
    """A group of users, which apps receive in the ``groups`` claim. GROUPS is a reserved word of MySQL."""

    __tablename__ = "user_groups"
    __table_args__ = (
        UniqueConstraint("organization_id", "name_key"),
        Index("ix_user_groups_external_id", "organization_id", "provisioned_by", "external_id", unique=True),
    )

    name: Mapped[str] = mapped_column(String(100))
    name_key: Mapped[str] = mapped_column(
        Identifier(400), comment="case-folded name, for order, search and uniqueness"
    )
    description: Mapped[str] = mapped_column(String(500), default="")
    provider_groups: Mapped[list[dict[str, str]] | None] = mapped_column(
        Json, comment="groups at identity providers whose users are members, or none"
    )
    provisioned_by: Mapped[UUID | None] = mapped_column(
        comment="identity provider that manages the group by SCIM; no foreign key, because it may exist longer"
    )
    external_id: Mapped[str | None] = mapped_column(Identifier(255), comment="its name for the group")
    version: Mapped[int] = mapped_column(default=1)
    created_at: Mapped[datetime]
    created_by: Mapped[str | None] = mapped_column(String(200))
    updated_at: Mapped[datetime]


class GroupMember(Base):
    """A user's membership of a group."""

    __tablename__ = "group_members"
    __table_args__ = (
        Index("ix_group_members_user", "organization_id", "user_id"),
        within_organization("group_members", "group_id", "user_groups"),
        within_organization("group_members", "user_id", "users"),
    )

    organization_id: Mapped[str] = mapped_column(Identifier(ROUTING_KEY_LENGTH), primary_key=True)
    group_id: Mapped[UUID] = mapped_column(primary_key=True)
    user_id: Mapped[UUID] = mapped_column(primary_key=True)
    created_at: Mapped[datetime]
    created_by: Mapped[str | None] = mapped_column(String(200))


class AppRoleAssignment(Tenant, Base):
    """A role of a client that a user or a group has. The client's document declares its roles."""

    __tablename__ = "app_role_assignments"
    __table_args__ = (
        UniqueConstraint(
            "organization_id", "client_id", "role", "holder_id", name="uq_app_role_assignments_once"
        ),
        Index("ix_app_role_assignments_user", "organization_id", "user_id"),
        Index("ix_app_role_assignments_group", "organization_id", "group_id"),
        within_organization("app_role_assignments", "client_id", "clients"),
        within_organization("app_role_assignments", "user_id", "users"),
        within_organization("app_role_assignments", "group_id", "user_groups"),
    )

    client_id: Mapped[UUID]
    role: Mapped[str] = mapped_column(Identifier(64), comment="key of the role")
    holder_id: Mapped[UUID] = mapped_column(comment="user_id or group_id: the one that is set")
    user_id: Mapped[UUID | None]
    group_id: Mapped[UUID | None]
    created_at: Mapped[datetime]
    created_by: Mapped[str | None] = mapped_column(String(200))


class Invitation(Tenant, Base):
    """A single-use link that makes its holder a user with a role."""

    __tablename__ = "invitations"
    __table_args__ = (
        UniqueConstraint("organization_id", "digest"),
        Index("ix_invitations_email", "organization_id", "email_canonical"),
    )

    digest: Mapped[bytes] = mapped_column(Digest)
    email: Mapped[str] = mapped_column(String(320))
    email_canonical: Mapped[str] = mapped_column(Identifier(320))
    name: Mapped[str] = mapped_column(String(200), default="")
    role: Mapped[str] = mapped_column(Identifier(64))
    created_at: Mapped[datetime]
    created_by: Mapped[str | None] = mapped_column(String(200))
    created_by_id: Mapped[str | None] = mapped_column(
        Identifier(64),
        comment="usr_ or cli_ id of the inviter, whose permission is checked again; NULL for the service",
    )
    expires_at: Mapped[datetime] = mapped_column(index=True)
    is_mailed: Mapped[bool] = mapped_column(
        default=False, comment="whether the link was only emailed, so that its use verifies the email"
    )
    used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]


class AccountLink(Base):
    """The only link of a user for a purpose.

    The row is deleted when it is used and replaced by a new link.
    """

    __tablename__ = "account_links"
    __table_args__ = (
        UniqueConstraint("organization_id", "digest"),
        within_organization("account_links", "user_id", "users"),
    )

    organization_id: Mapped[str] = mapped_column(Identifier(ROUTING_KEY_LENGTH), primary_key=True)
    user_id: Mapped[UUID] = mapped_column(primary_key=True)
    purpose: Mapped[str] = mapped_column(
        Identifier(16), primary_key=True, comment="the kind of its token: pw, ev"
    )
    digest: Mapped[bytes] = mapped_column(Digest)
    bound_digest: Mapped[bytes] = mapped_column(
        Digest, comment="digest of what must not change before it is used: password, email"
    )
    address: Mapped[str | None] = mapped_column(
        String(320), comment="email that it verifies, as typed; NULL for a password reset"
    )
    is_mailed: Mapped[bool] = mapped_column(
        comment="whether the link was only emailed, so that its use verifies the email"
    )
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime] = mapped_column(index=True)


class Registration(Tenant, Base):
    """A registration that waits until the email is verified or an administrator approves it.

    Several may wait for one email, so that registrations by others do not end the owner's.
    """

    __tablename__ = "registrations"
    __table_args__ = (
        UniqueConstraint("organization_id", "digest"),
        Index("ix_registrations_email", "organization_id", "email_canonical"),
    )

    digest: Mapped[bytes] = mapped_column(Digest, comment="digest of the token in the link")
    email: Mapped[str] = mapped_column(String(320), comment="as typed")
    email_canonical: Mapped[str] = mapped_column(Identifier(320))
    name: Mapped[str] = mapped_column(String(200))
    password_hash: Mapped[str] = mapped_column(String(255), comment="argon2id")
    is_mailed: Mapped[bool] = mapped_column(comment="whether the link was only emailed")
    address: Mapped[str | None] = mapped_column(Identifier(64), comment="IP address of the request")
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime] = mapped_column(index=True)


class UserImport(Tenant, Base):
    """An uploaded file of users.

    ``position`` and the counts advance in the transaction that imports a part.
    """

    __tablename__ = "user_imports"
    __table_args__ = (Index("ix_user_imports_due", "status", "worked_at"),)

    name: Mapped[str] = mapped_column(String(200), comment="name of the file")
    format: Mapped[str] = mapped_column(Identifier(8), comment="csv, json, ndjson")
    digest: Mapped[bytes] = mapped_column(Digest, comment="digest of the whole file")
    on_existing: Mapped[str] = mapped_column(Identifier(8), comment="skip, update")
    status: Mapped[str] = mapped_column(
        Identifier(16), comment="uploading, checking, checked, running, done, cancelled, failed"
    )
    is_foreground: Mapped[bool] = mapped_column(
        comment="whether the command line runs it instead of a server"
    )
    importer: Mapped[dict[str, Any]] = mapped_column(comment="actor who started it, with their permissions")
    total: Mapped[int] = mapped_column(comment="rows of the file")
    parts: Mapped[int]
    position: Mapped[int] = mapped_column(comment="completed parts")
    created: Mapped[int]
    updated: Mapped[int]
    skipped: Mapped[int]
    refused: Mapped[int]
    failure: Mapped[str | None] = mapped_column(String(300))
    created_at: Mapped[datetime]
    worked_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]
    expires_at: Mapped[datetime] = mapped_column(index=True)


class UserImportPart(Base):
    """Some rows of the file.

    They are sealed because they contain personal data and hashes, and deleted after import.
    """

    __tablename__ = "user_import_parts"
    __table_args__ = (within_organization("user_import_parts", "import_id", "user_imports"),)

    organization_id: Mapped[str] = mapped_column(Identifier(ROUTING_KEY_LENGTH), primary_key=True)
    import_id: Mapped[UUID] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    sealed_rows: Mapped[bytes] = mapped_column(Sealed)
    expires_at: Mapped[datetime] = mapped_column(index=True)


class UserImportRefusal(Base):
    """A row that was not imported with its errors, so that it can be corrected and uploaded again."""

    __tablename__ = "user_import_refusals"
    __table_args__ = (within_organization("user_import_refusals", "import_id", "user_imports"),)

    organization_id: Mapped[str] = mapped_column(Identifier(ROUTING_KEY_LENGTH), primary_key=True)
    import_id: Mapped[UUID] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, comment="number of the row in the file")
    sealed_row: Mapped[bytes] = mapped_column(Sealed, comment="the row and its errors")
    expires_at: Mapped[datetime] = mapped_column(index=True)
