"""Device codes.

Revision: 0007
Follows: 0006
"""

import sqlalchemy as sa
from alembic import op

from migrations.column_types import DIGEST, TABLE_OPTIONS, UTC_DATETIME, UUID, identifier

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "device_codes",
        sa.Column("digest", DIGEST, nullable=False),
        sa.Column("user_code_digest", DIGEST, nullable=False, comment="keyed: eight letters could be tried out otherwise"),
        sa.Column("client_id", UUID, nullable=False),
        sa.Column("scope", sa.String(4000), nullable=False, comment="asked for; once allowed, what was allowed"),
        sa.Column("resource", sa.String(3200), nullable=False, comment="resource indicators, space-separated (RFC 8707)"),
        sa.Column("address", identifier(64), nullable=True, comment="where the device asked from"),
        sa.Column("network", identifier(64), nullable=False, comment="the part of it that limits count by"),
        sa.Column("created_at", UTC_DATETIME, nullable=False),
        sa.Column("expires_at", UTC_DATETIME, nullable=False),
        sa.Column("interval_seconds", sa.Integer(), nullable=False, comment="between two polls; grows by each slow_down"),
        sa.Column("next_poll_at", UTC_DATETIME, nullable=False, comment="an earlier poll is too fast"),
        sa.Column("state", identifier(8), nullable=False, comment="pending, allowed, denied"),
        sa.Column("shown_digest", DIGEST, nullable=True, comment="what consent displayed: session, client, scopes"),
        sa.Column("decided_at", UTC_DATETIME, nullable=True),
        sa.Column("user_id", UUID, nullable=True, comment="who allowed it"),
        sa.Column("auth_time", UTC_DATETIME, nullable=True),
        sa.Column("amr", identifier(64), nullable=True),
        sa.Column("acr", identifier(128), nullable=True),
        sa.Column("grant_id", UUID, nullable=False, comment="chosen now, written when redeemed"),
        sa.Column("used_at", UTC_DATETIME, nullable=True),
        sa.Column("attempt", UUID, nullable=True, comment="which attempt claimed it: tells a lost answer from a second use"),
        sa.Column("organization_id", identifier(8), nullable=False, comment="routing key of the organization"),
        sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application"),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_device_codes"),
        sa.ForeignKeyConstraint(["organization_id", "client_id"], ["clients.organization_id", "clients.id"], name="fk_device_codes_client_id"),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], name="fk_device_codes_organization"),
        sa.ForeignKeyConstraint(["organization_id", "user_id"], ["users.organization_id", "users.id"], name="fk_device_codes_user_id"),
        sa.UniqueConstraint("organization_id", "digest", name="uq_device_codes_organization_id_digest"),
        sa.UniqueConstraint("organization_id", "user_code_digest", name="uq_device_codes_organization_id_user_code_digest"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_device_codes_client", "device_codes", ["organization_id", "client_id", "network", "expires_at"])
    op.create_index("ix_device_codes_user", "device_codes", ["organization_id", "user_id"])
    op.create_index("ix_device_codes_expires_at", "device_codes", ["expires_at"])


def downgrade() -> None:
    op.drop_table("device_codes")
