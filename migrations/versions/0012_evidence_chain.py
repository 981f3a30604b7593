"""Evidence: the hash chain of audit events.

Revision: 0012
Follows: 0011
"""

import sqlalchemy as sa
from alembic import op

from migrations.column_types import DIGEST, TABLE_OPTIONS, UTC_DATETIME, UUID, identifier

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "audit_links",
        sa.Column("position", sa.BigInteger(), nullable=False, comment="1 for the first event that was sealed"),
        sa.Column("mac", DIGEST, nullable=False, comment="over the link before, the position and the event"),
        sa.Column("organization_id", identifier(8), nullable=False, comment="routing key of the organization"),
        sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application"),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_audit_links"),
        sa.UniqueConstraint("organization_id", "position", name="uq_audit_links_position"),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], name="fk_audit_links_organization"),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "audit_chains",
        sa.Column("organization_id", identifier(8), nullable=False),
        sa.Column("length", sa.BigInteger(), nullable=False, comment="position of the last link"),
        sa.Column("head", DIGEST, nullable=False, comment="mac of the last link"),
        sa.Column(
            "removed",
            sa.BigInteger(),
            nullable=False,
            comment="position up to which retention has removed links and their events",
        ),
        sa.Column("anchor", DIGEST, nullable=False, comment="mac of the last link that was removed"),
        sa.Column("mac", DIGEST, nullable=False, comment="over both ends"),
        sa.Column("grown_at", UTC_DATETIME, nullable=False),
        sa.PrimaryKeyConstraint("organization_id", name="pk_audit_chains"),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], name="fk_audit_chains_organization"),
        **TABLE_OPTIONS,
    )


def downgrade() -> None:
    op.drop_table("audit_chains")
    op.drop_table("audit_links")
