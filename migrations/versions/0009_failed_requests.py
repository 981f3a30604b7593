"""The failed-request log.

Revision: 0009
Follows: 0008
"""

import sqlalchemy as sa
from alembic import op

from migrations.column_types import JSON_TEXT, TABLE_OPTIONS, UTC_DATETIME, UUID, identifier

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "failed_requests",
        sa.Column("client_id", UUID, nullable=False),
        sa.Column("at", UTC_DATETIME, nullable=False),
        sa.Column("request_id", identifier(64), nullable=False, comment="req_…, as the error page shows it"),
        sa.Column("endpoint", identifier(32), nullable=False, comment="authorize, token, introspect …"),
        sa.Column("method", identifier(8), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("error", identifier(64), nullable=False, comment="the code that the client was told"),
        sa.Column("description", sa.String(500), nullable=False, comment="the words that it was told"),
        sa.Column("cause", identifier(48), nullable=False, comment="a code of rules/audit/failed_requests"),
        sa.Column("received", sa.String(2048), nullable=True),
        sa.Column("expected", JSON_TEXT, nullable=False, comment="any one of them would have been right"),
        sa.Column("parameters", JSON_TEXT, nullable=False, comment="of the request, secrets removed"),
        sa.Column("address", identifier(64), nullable=True),
        sa.Column("expires_at", UTC_DATETIME, nullable=False),
        sa.Column("organization_id", identifier(8), nullable=False, comment="routing key of the organization"),
        sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application"),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_failed_requests"),
        sa.ForeignKeyConstraint(["organization_id", "client_id"], ["clients.organization_id", "clients.id"], name="fk_failed_requests_client_id"),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], name="fk_failed_requests_organization"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_failed_requests_client", "failed_requests", ["organization_id", "client_id", "cause", "id"])
    op.create_index("ix_failed_requests_cause", "failed_requests", ["organization_id", "cause", "id"])
    op.create_index("ix_failed_requests_request", "failed_requests", ["organization_id", "request_id"])
    op.create_index("ix_failed_requests_expires_at", "failed_requests", ["expires_at"])


def downgrade() -> None:
    op.drop_table("failed_requests")
