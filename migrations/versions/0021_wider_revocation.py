"""Receipts of wider revocations, and the moments before which nothing counts.

Revision: 0021
Follows: 0020
"""

import sqlalchemy as sa
from alembic import op

from migrations.column_types import JSON_TEXT, TABLE_OPTIONS, UTC_DATETIME, UUID, identifier

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

ISSUED = "what was issued before is dead: set by a revocation, never set back"
MINTED = "what it minted before is dead: set by a revocation, never set back"
SIGNED_IN = "sign-ins from before are over: set by a revocation, never set back"
MOMENTS = (
    ("organizations", "tokens_not_before", ISSUED),
    ("organizations", "sessions_not_before", SIGNED_IN),
    ("clients", "tokens_not_before", ISSUED),
    ("users", "tokens_not_before", ISSUED),
    ("client_credentials", "tokens_not_before", MINTED),
)


def upgrade() -> None:
    # A column without a value needs no rebuilt table on either engine.
    for table, column, comment in MOMENTS:
        op.add_column(table, sa.Column(column, UTC_DATETIME, nullable=True, comment=comment))
    op.create_table(
        "revocation_receipts",
        sa.Column("kind", identifier(16), nullable=False, comment="grant, client, credential, user, session, organization"),
        sa.Column("subject", identifier(64), nullable=False, comment="public id of what was selected, which may be gone since"),
        sa.Column("issued_before", UTC_DATETIME, nullable=False, comment="what was issued before is dead"),
        sa.Column("sessions", sa.Boolean(), nullable=False, comment="sign-ins ended, too"),
        sa.Column("reason", sa.String(500), nullable=True),
        sa.Column("counts", JSON_TEXT, nullable=False, comment="what was alive, each count cut off"),
        sa.Column("created_at", UTC_DATETIME, nullable=False),
        sa.Column("created_by", sa.String(200), nullable=True),
        sa.Column("created_by_id", identifier(64), nullable=True, comment="public id of who asked"),
        sa.Column("settled_at", UTC_DATETIME, nullable=True, comment="when the rows of sign-ins that it ended were cleared and clients were told"),
        sa.Column("expires_at", UTC_DATETIME, nullable=False, comment="as long as audit events"),
        sa.Column("organization_id", identifier(8), nullable=False, comment="routing key of the organization"),
        sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application"),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_revocation_receipts"),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], name="fk_revocation_receipts_organization"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_revocation_receipts_unsettled", "revocation_receipts", ["settled_at", "created_at"])
    op.create_index("ix_revocation_receipts_expires_at", "revocation_receipts", ["expires_at"])


def downgrade() -> None:
    op.drop_table("revocation_receipts")
    for table, column, _ in reversed(MOMENTS):
        op.drop_column(table, column)
