"""Pushed authorization requests.

Revision: 0006
Follows: 0005
"""

import sqlalchemy as sa
from alembic import op

from migrations.column_types import DIGEST, JSON_TEXT, TABLE_OPTIONS, UTC_DATETIME, UUID, identifier

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "pushed_requests",
        sa.Column("digest", DIGEST, nullable=False),
        sa.Column("client_id", UUID, nullable=False),
        sa.Column("network", identifier(64), nullable=False, comment="where it came from, as far as limits count"),
        sa.Column("parameters", JSON_TEXT, nullable=False),
        sa.Column("created_at", UTC_DATETIME, nullable=False),
        sa.Column("expires_at", UTC_DATETIME, nullable=False, comment="until when a browser may bring it"),
        sa.Column("used_at", UTC_DATETIME, nullable=True, comment="when the request was answered"),
        sa.Column("organization_id", identifier(8), nullable=False, comment="routing key of the organization"),
        sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application"),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_pushed_requests"),
        sa.ForeignKeyConstraint(["organization_id", "client_id"], ["clients.organization_id", "clients.id"], name="fk_pushed_requests_client_id"),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], name="fk_pushed_requests_organization"),
        sa.UniqueConstraint("organization_id", "digest", name="uq_pushed_requests_organization_id_digest"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_pushed_requests_client", "pushed_requests", ["organization_id", "client_id", "network", "expires_at"])
    op.create_index("ix_pushed_requests_expires_at", "pushed_requests", ["expires_at"])


def downgrade() -> None:
    op.drop_table("pushed_requests")
