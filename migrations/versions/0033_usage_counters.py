"""Counters of tokens, requests, failures, sign-ins and active users by hour and day.

They begin at zero: what happened before was not counted.

Revision: 0033
Follows: 0032
"""

import sqlalchemy as sa
from alembic import op

from migrations.column_types import TABLE_OPTIONS, UTC_DATETIME, UUID, identifier

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "usage_counters",
        sa.Column(
            "organization_id", identifier(8), nullable=False, comment="routing key of the organization"
        ),
        sa.Column("client_id", UUID, nullable=False, comment="zeros: the whole organization"),
        sa.Column("span", identifier(4), nullable=False, comment="hour, day"),
        sa.Column(
            "metric",
            identifier(16),
            nullable=False,
            comment="tokens, requests, failed, sign_ins, users",
        ),
        sa.Column("starts_at", UTC_DATETIME, nullable=False),
        sa.Column(
            "detail",
            identifier(48),
            nullable=False,
            comment="grant type, endpoint and outcome, cause, or method",
        ),
        sa.Column(
            "subject_id",
            UUID,
            nullable=False,
            comment="the secret of requests, the user of users, otherwise zeros",
        ),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(
            "organization_id",
            "client_id",
            "span",
            "metric",
            "starts_at",
            "detail",
            "subject_id",
            name="pk_usage_counters",
        ),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_usage_counters_starts_at", "usage_counters", ["starts_at"])


def downgrade() -> None:
    op.drop_table("usage_counters")
