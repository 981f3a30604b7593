"""Runs of the portal's playground: what an authorization request with its redirect URI is compared with.

Revision: 0035
Follows: 0034
"""

import sqlalchemy as sa
from alembic import op

from migrations.column_types import DIGEST, SEALED, TABLE_OPTIONS, UTC_DATETIME, UUID, identifier

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "playground_runs",
        sa.Column("organization_id", identifier(8), nullable=False, comment="routing key of the organization"),
        sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application"),
        sa.Column("state_digest", DIGEST, nullable=False, comment="of the state in its authorization request"),
        sa.Column("browser_digest", DIGEST, nullable=False, comment="the browser that began it"),
        sa.Column(
            "user_id",
            UUID,
            nullable=False,
            comment="who began it; root's users belong to another organization, hence no foreign key",
        ),
        sa.Column("client_id", UUID, nullable=False),
        sa.Column("sealed", SEALED, nullable=False, comment="choices, verifier, requests and responses"),
        sa.Column("created_at", UTC_DATETIME, nullable=False),
        sa.Column("expires_at", UTC_DATETIME, nullable=False),
        sa.Column("redeemed_at", UTC_DATETIME, nullable=True, comment="from then on its state is invalid"),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_playground_runs"),
        sa.UniqueConstraint(
            "organization_id", "state_digest", name="uq_playground_runs_organization_id_state_digest"
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "client_id"],
            ["clients.organization_id", "clients.id"],
            name="fk_playground_runs_client_id",
        ),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_playground_runs_client", "playground_runs", ["organization_id", "client_id"])
    op.create_index("ix_playground_runs_user", "playground_runs", ["organization_id", "user_id"])
    op.create_index("ix_playground_runs_expires_at", "playground_runs", ["expires_at"])


def downgrade() -> None:
    op.drop_table("playground_runs")
