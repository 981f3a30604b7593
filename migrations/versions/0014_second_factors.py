"""Second factors: authenticator apps, recovery codes, and sign-ins that wait for one.

Revision: 0014
Follows: 0013
"""

import sqlalchemy as sa
from alembic import op

from migrations.column_types import DIGEST, SEALED, TABLE_OPTIONS, UTC_DATETIME, UUID, identifier

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

MOMENTS = (
    ("factor_demanded_at", "since when the policy demands a second factor of everybody"),
    ("admins_factor_demanded_at", "since when it demands one of administrators"),
)


def upgrade() -> None:
    for column, comment in MOMENTS:
        op.add_column("organizations", sa.Column(column, UTC_DATETIME, nullable=True, comment=comment))
    op.create_table(
        "authenticator_apps",
        sa.Column("organization_id", identifier(8), nullable=False),
        sa.Column("user_id", UUID, nullable=False),
        sa.Column("sealed_secret", SEALED, nullable=False),
        sa.Column("last_step", sa.BigInteger(), nullable=False, comment="time step of the code used last: only later ones count"),
        sa.Column("created_at", UTC_DATETIME, nullable=False),
        sa.Column("last_used_at", UTC_DATETIME, nullable=True),
        sa.PrimaryKeyConstraint("organization_id", "user_id", name="pk_authenticator_apps"),
        *_owned("authenticator_apps"),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "recovery_codes",
        sa.Column("organization_id", identifier(8), nullable=False),
        sa.Column("digest", DIGEST, nullable=False),
        sa.Column("user_id", UUID, nullable=False),
        sa.Column("created_at", UTC_DATETIME, nullable=False),
        sa.Column("used_at", UTC_DATETIME, nullable=True),
        sa.PrimaryKeyConstraint("organization_id", "digest", name="pk_recovery_codes"),
        *_owned("recovery_codes"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_recovery_codes_user", "recovery_codes", ["organization_id", "user_id"])
    op.create_table(
        "pending_sign_ins",
        sa.Column("digest", DIGEST, nullable=False),
        sa.Column("user_id", UUID, nullable=False),
        sa.Column("browser_digest", DIGEST, nullable=False, comment="the browser that gave the first proof"),
        sa.Column("amr", identifier(64), nullable=False, comment="what was proved so far, RFC 8176"),
        sa.Column("created_at", UTC_DATETIME, nullable=False),
        sa.Column("expires_at", UTC_DATETIME, nullable=False),
        sa.Column("organization_id", identifier(8), nullable=False, comment="routing key of the organization"),
        sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application"),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_pending_sign_ins"),
        sa.UniqueConstraint("organization_id", "digest", name="uq_pending_sign_ins_organization_id_digest"),
        *_owned("pending_sign_ins"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_pending_sign_ins_user", "pending_sign_ins", ["organization_id", "user_id"])
    op.create_index("ix_pending_sign_ins_expires_at", "pending_sign_ins", ["expires_at"])
    op.create_table(
        "second_factor_tries",
        sa.Column("organization_id", identifier(8), nullable=False),
        sa.Column("user_id", UUID, nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("failed_at", UTC_DATETIME, nullable=False, comment="the last of them"),
        sa.Column("expires_at", UTC_DATETIME, nullable=False),
        sa.PrimaryKeyConstraint("organization_id", "user_id", name="pk_second_factor_tries"),
        *_owned("second_factor_tries"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_second_factor_tries_expires_at", "second_factor_tries", ["expires_at"])


def downgrade() -> None:
    for table in ("second_factor_tries", "pending_sign_ins", "recovery_codes", "authenticator_apps"):
        op.drop_table(table)
    for column, _ in reversed(MOMENTS):
        op.drop_column("organizations", column)


def _owned(table: str) -> tuple[sa.ForeignKeyConstraint, ...]:
    return (
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], name=f"fk_{table}_organization"),
        sa.ForeignKeyConstraint(["organization_id", "user_id"], ["users.organization_id", "users.id"], name=f"fk_{table}_user_id"),
    )
