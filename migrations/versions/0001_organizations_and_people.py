"""Organizations, their people, sign-ins and limits.

Revision: 0001
Follows: nothing
"""

import sqlalchemy as sa
from alembic import op

from migrations.column_types import DIGEST, JSON_TEXT, SEALED, TABLE_OPTIONS, UTC_DATETIME, UUID, identifier

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "organizations",
        sa.Column("id", identifier(8), nullable=False, comment="routing key, in every token"),
        sa.Column("slug", identifier(40), nullable=False, comment="immutable, never given again"),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("is_root", sa.Boolean(), nullable=False),
        sa.Column("status", identifier(16), nullable=False, comment="active, suspended, deleted, purged"),
        sa.Column("version", sa.Integer(), nullable=False, comment="raised by each change that a cached view must see"),
        sa.Column("settings", JSON_TEXT, nullable=False, comment="overrides of the defaults alone"),
        sa.Column("settings_version", sa.Integer(), nullable=False),
        sa.Column("settings_updated_at", UTC_DATETIME, nullable=True),
        sa.Column("settings_updated_by", sa.String(200), nullable=True),
        sa.Column("data_key", SEALED, nullable=True, comment="the organization's data key under the instance's; NULL once purged"),
        sa.Column("created_at", UTC_DATETIME, nullable=False),
        sa.Column("created_by", sa.String(200), nullable=True),
        sa.Column("updated_at", UTC_DATETIME, nullable=False),
        sa.Column("tokens_valid_from", UTC_DATETIME, nullable=True, comment="when it was restored: tokens and sign-ins from before are dead"),
        sa.Column("deleted_at", UTC_DATETIME, nullable=True),
        sa.Column("purge_at", UTC_DATETIME, nullable=True, comment="when the janitor removes its data"),
        sa.PrimaryKeyConstraint("id", name="pk_organizations"),
        sa.UniqueConstraint("slug", name="uq_organizations_slug"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_organizations_purge_at", "organizations", ["purge_at"])
    op.create_table(
        "users",
        sa.Column("email", sa.String(320), nullable=False, comment="as typed"),
        sa.Column("email_canonical", identifier(320), nullable=False, comment="what two spellings of one address share"),
        sa.Column("email_verified", sa.Boolean(), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("profile", JSON_TEXT, nullable=False, comment="standard claims beside name and e-mail"),
        sa.Column("password_hash", sa.String(255), nullable=True, comment="argon2id, or as another system made it"),
        sa.Column("password_scheme", identifier(40), nullable=True, comment="kind and cost of another system's hash, NULL once it is ours"),
        sa.Column("password_changed_at", UTC_DATETIME, nullable=True),
        sa.Column("status", identifier(16), nullable=False, comment="active, disabled, deleted"),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("created_at", UTC_DATETIME, nullable=False),
        sa.Column("updated_at", UTC_DATETIME, nullable=False),
        sa.Column("last_sign_in_at", UTC_DATETIME, nullable=True),
        sa.Column("organization_id", identifier(8), nullable=False, comment="routing key of the organization"),
        sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application"),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_users"),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], name="fk_users_organization"),
        sa.UniqueConstraint("organization_id", "email_canonical", name="uq_users_organization_id_email_canonical"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_users_password_scheme", "users", ["organization_id", "password_scheme"])
    op.create_table(
        "role_assignments",
        sa.Column("user_organization_id", identifier(8), nullable=False, comment="the same organization, or root's"),
        sa.Column("user_id", UUID, nullable=False),
        sa.Column("role", identifier(64), nullable=False, comment="admin, developer, auditor, member or a custom one"),
        sa.Column("created_at", UTC_DATETIME, nullable=False),
        sa.Column("created_by", sa.String(200), nullable=True),
        sa.Column("organization_id", identifier(8), nullable=False, comment="routing key of the organization"),
        sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application"),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_role_assignments"),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], name="fk_role_assignments_organization"),
        sa.ForeignKeyConstraint(["user_organization_id", "user_id"], ["users.organization_id", "users.id"], name="fk_role_assignments_user"),
        sa.UniqueConstraint("organization_id", "user_organization_id", "user_id", "role", name="uq_role_assignments_once"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_role_assignments_user", "role_assignments", ["user_organization_id", "user_id"])
    op.create_table(
        "invitations",
        sa.Column("digest", DIGEST, nullable=False),
        sa.Column("email", sa.String(320), nullable=False),
        sa.Column("email_canonical", identifier(320), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("role", identifier(64), nullable=False),
        sa.Column("created_at", UTC_DATETIME, nullable=False),
        sa.Column("created_by", sa.String(200), nullable=True),
        sa.Column("expires_at", UTC_DATETIME, nullable=False),
        sa.Column(
            "is_mailed",
            sa.Boolean(),
            nullable=False,
            comment="its link went to the mailbox alone, so whoever holds it reads that mailbox",
        ),
        sa.Column("used_at", UTC_DATETIME, nullable=True),
        sa.Column("revoked_at", UTC_DATETIME, nullable=True),
        sa.Column("organization_id", identifier(8), nullable=False, comment="routing key of the organization"),
        sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application"),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_invitations"),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], name="fk_invitations_organization"),
        sa.UniqueConstraint("organization_id", "digest", name="uq_invitations_organization_id_digest"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_invitations_email", "invitations", ["organization_id", "email_canonical"])
    op.create_index("ix_invitations_expires_at", "invitations", ["expires_at"])
    op.create_table(
        "sessions",
        sa.Column("digest", DIGEST, nullable=False),
        sa.Column("user_id", UUID, nullable=False),
        sa.Column("created_at", UTC_DATETIME, nullable=False),
        sa.Column("authenticated_at", UTC_DATETIME, nullable=False, comment="auth_time of OpenID Connect"),
        sa.Column("amr", identifier(64), nullable=False, comment="RFC 8176, space-separated"),
        sa.Column("last_seen_at", UTC_DATETIME, nullable=False, comment="sampled, at most once a minute"),
        sa.Column("expires_at", UTC_DATETIME, nullable=False, comment="the absolute end"),
        sa.Column("revoked_at", UTC_DATETIME, nullable=True),
        sa.Column("address", identifier(64), nullable=True),
        sa.Column("user_agent", sa.String(255), nullable=False),
        sa.Column("organization_id", identifier(8), nullable=False, comment="routing key of the organization"),
        sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application"),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_sessions"),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], name="fk_sessions_organization"),
        sa.ForeignKeyConstraint(["organization_id", "user_id"], ["users.organization_id", "users.id"], name="fk_sessions_user_id"),
        sa.UniqueConstraint("organization_id", "digest", name="uq_sessions_organization_id_digest"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_sessions_expires_at", "sessions", ["expires_at"])
    op.create_index("ix_sessions_user", "sessions", ["organization_id", "user_id"])
    op.create_table(
        "attempts",
        sa.Column("bucket", DIGEST, nullable=False, comment="digest of what is limited: kind, account, network"),
        sa.Column("at", UTC_DATETIME, nullable=False),
        sa.Column("expires_at", UTC_DATETIME, nullable=False),
        sa.Column("organization_id", identifier(8), nullable=False, comment="routing key of the organization"),
        sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application"),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_attempts"),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], name="fk_attempts_organization"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_attempts_bucket", "attempts", ["organization_id", "bucket", "at"])
    op.create_index("ix_attempts_expires_at", "attempts", ["expires_at"])


def downgrade() -> None:
    op.drop_table("attempts")
    op.drop_table("sessions")
    op.drop_table("invitations")
    op.drop_table("role_assignments")
    op.drop_table("users")
    op.drop_table("organizations")
