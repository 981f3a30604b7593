"""Mail: links that prove addresses or let a password be chosen anew.

Revision: 0011
Follows: 0010
"""

import sqlalchemy as sa
from alembic import op

from migrations.column_types import DIGEST, TABLE_OPTIONS, UTC_DATETIME, UUID, identifier

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "account_links",
        sa.Column("organization_id", identifier(8), nullable=False),
        sa.Column("user_id", UUID, nullable=False),
        sa.Column("purpose", identifier(16), nullable=False, comment="the kind of its token: pw, ev"),
        sa.Column("digest", DIGEST, nullable=False),
        sa.Column(
            "bound_digest",
            DIGEST,
            nullable=False,
            comment="of what must stand unchanged until it is used: the password, the address",
        ),
        sa.Column(
            "is_mailed",
            sa.Boolean(),
            nullable=False,
            comment="it went to the user's mailbox and nowhere else, so whoever holds it reads that mailbox",
        ),
        sa.Column("created_at", UTC_DATETIME, nullable=False),
        sa.Column("expires_at", UTC_DATETIME, nullable=False),
        sa.PrimaryKeyConstraint("organization_id", "user_id", "purpose", name="pk_account_links"),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], name="fk_account_links_organization"),
        sa.ForeignKeyConstraint(
            ["organization_id", "user_id"],
            ["users.organization_id", "users.id"],
            name="fk_account_links_user_id",
        ),
        sa.UniqueConstraint("organization_id", "digest", name="uq_account_links_organization_id_digest"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_account_links_expires_at", "account_links", ["expires_at"])


def downgrade() -> None:
    op.drop_table("account_links")
