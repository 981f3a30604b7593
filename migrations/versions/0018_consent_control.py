"""What administrators decide about clients that members ask for, and ends of consents.

Revision: 0018
Follows: 0017
"""

import sqlalchemy as sa
from alembic import op

from migrations.column_types import JSON_TEXT, TABLE_OPTIONS, UTC_DATETIME, UUID, identifier

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

SHOWN = "what the client said of itself then: its name, and digests of the rest"
END = "end of the consent: nothing that the code gives outlives it"
CODES = ("authorization_codes", "device_codes")


def upgrade() -> None:
    op.add_column("consents", sa.Column("shown", JSON_TEXT, nullable=True, comment=SHOWN))
    for table in CODES:
        op.add_column(table, sa.Column("grant_ends_at", UTC_DATETIME, nullable=True, comment=END))
    op.create_table(
        "client_requests",
        sa.Column("client_id", UUID, nullable=False),
        sa.Column("user_id", UUID, nullable=False, comment="the member who asks"),
        sa.Column("is_open", sa.Boolean(), nullable=True, comment="true while nobody has decided, NULL afterwards"),
        sa.Column("status", identifier(16), nullable=False, comment="open, approved, declined"),
        sa.Column("scope", sa.String(4000), nullable=False, comment="what the client had asked for, space-separated"),
        sa.Column("reason", sa.String(300), nullable=False, comment="the member's words"),
        sa.Column("created_at", UTC_DATETIME, nullable=False),
        sa.Column("decided_at", UTC_DATETIME, nullable=True),
        sa.Column("decided_by", sa.String(200), nullable=True),
        sa.Column("message", sa.String(300), nullable=True, comment="the decider's words for the member"),
        sa.Column("expires_at", UTC_DATETIME, nullable=False),
        sa.Column("organization_id", identifier(8), nullable=False, comment="routing key of the organization"),
        sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application"),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_client_requests"),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], name="fk_client_requests_organization"),
        sa.ForeignKeyConstraint(["organization_id", "client_id"], ["clients.organization_id", "clients.id"], name="fk_client_requests_client_id"),
        sa.ForeignKeyConstraint(["organization_id", "user_id"], ["users.organization_id", "users.id"], name="fk_client_requests_user_id"),
        sa.UniqueConstraint("organization_id", "client_id", "user_id", "is_open", name="uq_client_requests_organization_id_client_id_user_id_is_open"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_client_requests_status", "client_requests", ["organization_id", "status", "id"])
    op.create_index("ix_client_requests_user", "client_requests", ["organization_id", "user_id"])
    op.create_index("ix_client_requests_expires_at", "client_requests", ["expires_at"])


def downgrade() -> None:
    op.drop_table("client_requests")
    for table in CODES:
        with op.batch_alter_table(table) as batch:
            batch.drop_column("grant_ends_at")
    with op.batch_alter_table("consents") as batch:
        batch.drop_column("shown")
