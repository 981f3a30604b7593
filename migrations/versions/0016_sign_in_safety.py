"""Known browsers, and addresses that wait to be confirmed.

Revision: 0016
Follows: 0015
"""

import sqlalchemy as sa
from alembic import op

from migrations.column_types import DIGEST, TABLE_OPTIONS, UTC_DATETIME, UUID, identifier

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "known_browsers",
        sa.Column("organization_id", identifier(8), nullable=False, comment="routing key of the organization"),
        sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application"),
        sa.Column("digest", DIGEST, nullable=False, comment="of the value in its cookie"),
        sa.Column("user_id", UUID, nullable=False),
        sa.Column("created_at", UTC_DATETIME, nullable=False),
        sa.Column("last_used_at", UTC_DATETIME, nullable=False, comment="the latest complete sign-in"),
        sa.Column("expires_at", UTC_DATETIME, nullable=False),
        sa.Column("address", identifier(64), comment="of that sign-in"),
        sa.Column("user_agent", sa.String(255), nullable=False),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_known_browsers"),
        sa.UniqueConstraint("organization_id", "digest", name="uq_known_browsers_organization_id_digest"),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], name="fk_known_browsers_organization"),
        sa.ForeignKeyConstraint(
            ["organization_id", "user_id"],
            ["users.organization_id", "users.id"],
            name="fk_known_browsers_user_id",
        ),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_known_browsers_user", "known_browsers", ["organization_id", "user_id"])
    op.create_index("ix_known_browsers_expires_at", "known_browsers", ["expires_at"])
    op.create_table(
        "registrations",
        sa.Column("organization_id", identifier(8), nullable=False, comment="routing key of the organization"),
        sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application"),
        sa.Column("digest", DIGEST, nullable=False, comment="of the token in the link"),
        sa.Column("email", sa.String(320), nullable=False, comment="as typed"),
        sa.Column("email_canonical", identifier(320), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("password_hash", sa.String(255), nullable=False, comment="argon2id"),
        sa.Column(
            "is_mailed",
            sa.Boolean,
            nullable=False,
            comment="its link went to the mailbox and nowhere else",
        ),
        sa.Column("address", identifier(64), comment="where it was asked for"),
        sa.Column("created_at", UTC_DATETIME, nullable=False),
        sa.Column("expires_at", UTC_DATETIME, nullable=False),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_registrations"),
        sa.UniqueConstraint("organization_id", "digest", name="uq_registrations_organization_id_digest"),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], name="fk_registrations_organization"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_registrations_email", "registrations", ["organization_id", "email_canonical"])
    op.create_index("ix_registrations_expires_at", "registrations", ["expires_at"])
    op.add_column(
        "account_links",
        sa.Column(
            "address",
            sa.String(320),
            comment="the address that it proves, as typed; none where it is about a password",
        ),
    )


def downgrade() -> None:
    with op.batch_alter_table("account_links") as links:
        links.drop_column("address")
    op.drop_table("registrations")
    op.drop_table("known_browsers")
