"""Passkeys, and what authenticators call the people whose they are.

Revision: 0015
Follows: 0014
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

from migrations.column_types import TABLE_OPTIONS, UTC_DATETIME, UUID, identifier

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

PUBLIC_KEY = sa.LargeBinary(2048).with_variant(mysql.VARBINARY(2048), "mysql", "mariadb")


def upgrade() -> None:
    op.create_table(
        "passkey_handles",
        sa.Column("organization_id", identifier(8), nullable=False),
        sa.Column("user_id", UUID, nullable=False),
        sa.Column("handle", identifier(43), nullable=False, comment="256 random bits, base64url"),
        sa.PrimaryKeyConstraint("organization_id", "user_id", name="pk_passkey_handles"),
        sa.UniqueConstraint("organization_id", "handle", name="uq_passkey_handles_organization_id_handle"),
        *_owned("passkey_handles"),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "passkeys",
        sa.Column("user_id", UUID, nullable=False),
        sa.Column(
            "credential_id", identifier(1364), nullable=False, comment="at most 1023 bytes that the authenticator chose, base64url"
        ),
        sa.Column("public_key", PUBLIC_KEY, nullable=False, comment="COSE"),
        sa.Column(
            "sign_count",
            sa.BigInteger(),
            nullable=False,
            comment="of its latest use; only more counts, unless it never counts and stays 0",
        ),
        sa.Column("transports", identifier(128), nullable=False, comment="how browsers reach it: internal, usb …"),
        sa.Column("aaguid", UUID, nullable=False, comment="model of the authenticator, as it says; zero: unsaid"),
        sa.Column("name", sa.String(60), nullable=False),
        sa.Column("may_sync", sa.Boolean(), nullable=False, comment="its private key may be copied to other devices"),
        sa.Column("is_synced", sa.Boolean(), nullable=False, comment="its private key was backed up when it was last used"),
        sa.Column(
            "signs_in_alone",
            sa.Boolean(),
            nullable=False,
            comment="it knows whose it is and verifies them: no name and no password need be typed",
        ),
        sa.Column("user_agent", sa.String(255), nullable=False, comment="the browser in which it was made"),
        sa.Column("created_at", UTC_DATETIME, nullable=False),
        sa.Column("last_used_at", UTC_DATETIME, nullable=True),
        sa.Column("organization_id", identifier(8), nullable=False, comment="routing key of the organization"),
        sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application"),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_passkeys"),
        sa.UniqueConstraint("organization_id", "credential_id", name="uq_passkeys_organization_id_credential_id"),
        *_owned("passkeys"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_passkeys_user", "passkeys", ["organization_id", "user_id"])


def downgrade() -> None:
    op.drop_table("passkeys")
    op.drop_table("passkey_handles")


def _owned(table: str) -> tuple[sa.ForeignKeyConstraint, ...]:
    return (
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], name=f"fk_{table}_organization"),
        sa.ForeignKeyConstraint(["organization_id", "user_id"], ["users.organization_id", "users.id"], name=f"fk_{table}_user_id"),
    )
