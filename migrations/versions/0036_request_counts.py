"""Counts of requests that come near a limit, shared by the processes of all hosts.

Revision: 0036
Follows: 0035
"""

import sqlalchemy as sa
from alembic import op

from migrations.column_types import DIGEST, TABLE_OPTIONS, UTC_DATETIME, UUID, identifier

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "request_counts",
        sa.Column("organization_id", identifier(8), nullable=False, comment="routing key of the organization"),
        sa.Column("bucket", DIGEST, nullable=False, comment="digest of the kind of limit and whose requests"),
        sa.Column("starts_at", UTC_DATETIME, nullable=False, comment="the minute"),
        sa.Column("process_id", UUID, nullable=False, comment="who counted: made anew by each process"),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("expires_at", UTC_DATETIME, nullable=False),
        sa.PrimaryKeyConstraint(
            "organization_id", "bucket", "starts_at", "process_id", name="pk_request_counts"
        ),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_request_counts_expires_at", "request_counts", ["expires_at"])


def downgrade() -> None:
    op.drop_table("request_counts")
