"""Recent failed requests by cause, and a sample of the requests that succeeded.

Revision: 0034
Follows: 0033
"""

import sqlalchemy as sa
from alembic import op

from migrations.column_types import JSON_TEXT, TABLE_OPTIONS, UTC_DATETIME, UUID, identifier

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(
        "ix_failed_requests_recent", "failed_requests", ["organization_id", "at", "client_id", "cause", "id"]
    )
    op.create_table(
        "sampled_requests",
        sa.Column("organization_id", identifier(8), nullable=False, comment="routing key of the organization"),
        sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application"),
        sa.Column("client_id", UUID, nullable=False),
        sa.Column("at", UTC_DATETIME, nullable=False),
        sa.Column("request_id", identifier(64), nullable=False, comment="req_…, of the response header"),
        sa.Column("endpoint", identifier(32), nullable=False, comment="authorize, token, introspect …"),
        sa.Column("method", identifier(8), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("parameters", JSON_TEXT, nullable=False, comment="of the request, secrets removed"),
        sa.Column("address", identifier(64), nullable=True),
        sa.Column("expires_at", UTC_DATETIME, nullable=False),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_sampled_requests"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_sampled_requests_client", "sampled_requests", ["organization_id", "client_id", "id"])
    op.create_index("ix_sampled_requests_request", "sampled_requests", ["organization_id", "request_id"])
    op.create_index("ix_sampled_requests_expires_at", "sampled_requests", ["expires_at"])


def downgrade() -> None:
    op.drop_table("sampled_requests")
    op.drop_index("ix_failed_requests_recent", "failed_requests")
