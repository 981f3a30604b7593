"""Logout: which clients a sign-in has been told to, and must hear of its end.

Revision: 0010
Follows: 0009
"""

import sqlalchemy as sa
from alembic import op

from migrations.column_types import TABLE_OPTIONS, UTC_DATETIME, UUID, identifier

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "session_clients",
        sa.Column("organization_id", identifier(8), nullable=False),
        sa.Column(
            "session_id",
            UUID,
            nullable=False,
            comment="the sign-in whose end it hears of; no foreign key: it is read after that end",
        ),
        sa.Column("client_id", UUID, nullable=False),
        sa.Column(
            "sid",
            UUID,
            nullable=False,
            comment="the sign-in that its ID token named, which a later one may have replaced",
        ),
        sa.Column("user_id", UUID, nullable=False),
        sa.Column("expires_at", UTC_DATETIME, nullable=False, comment="when the sign-in has ended by age"),
        sa.PrimaryKeyConstraint("organization_id", "session_id", "client_id", "sid", name="pk_session_clients"),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name="fk_session_clients_organization"
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "user_id"],
            ["users.organization_id", "users.id"],
            name="fk_session_clients_user_id",
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "client_id"],
            ["clients.organization_id", "clients.id"],
            name="fk_session_clients_client_id",
        ),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_session_clients_client", "session_clients", ["organization_id", "client_id"])
    op.create_index("ix_session_clients_expires_at", "session_clients", ["expires_at"])


def downgrade() -> None:
    op.drop_table("session_clients")
