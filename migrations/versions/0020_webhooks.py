"""Webhooks: endpoints that hear of events, and what each was told; leaked registration access tokens are found.

Revision: 0020
Follows: 0019
"""

import sqlalchemy as sa
from alembic import op

from migrations.column_types import JSON_TEXT, SEALED, TABLE_OPTIONS, UTC_DATETIME, UUID, identifier

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "webhooks",
        sa.Column("url", sa.String(2048), nullable=False),
        sa.Column("description", sa.String(200), nullable=False),
        sa.Column("event_types", JSON_TEXT, nullable=False, comment="names, groups such as user.*, or *"),
        sa.Column("status", identifier(16), nullable=False, comment="enabled, disabled"),
        sa.Column(
            "disabled_because",
            identifier(16),
            nullable=True,
            comment="person, failing, gone, backlog; NULL while it is enabled",
        ),
        sa.Column("sealed_secret", SEALED, nullable=True, comment="signs; NULL once it was deleted"),
        sa.Column(
            "sealed_previous_secret",
            SEALED,
            nullable=True,
            comment="signs beside it until previous_secret_until",
        ),
        sa.Column("previous_secret_until", UTC_DATETIME, nullable=True),
        sa.Column(
            "failing_since", UTC_DATETIME, nullable=True, comment="the first failure after the last success"
        ),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("created_at", UTC_DATETIME, nullable=False),
        sa.Column("created_by", sa.String(200), nullable=True),
        sa.Column("updated_at", UTC_DATETIME, nullable=False),
        sa.Column(
            "deleted_at", UTC_DATETIME, nullable=True, comment="its row goes once its deliveries are gone"
        ),
        sa.Column(
            "organization_id", identifier(8), nullable=False, comment="routing key of the organization"
        ),
        sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application"),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_webhooks"),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], name="fk_webhooks_organization"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_webhooks_deleted_at", "webhooks", ["deleted_at"])
    op.create_table(
        "webhook_deliveries",
        sa.Column("webhook_id", UUID, nullable=False),
        sa.Column(
            "message_id",
            UUID,
            nullable=False,
            comment="the message of the outbox that carries it; that row may be gone",
        ),
        sa.Column("event_type", identifier(64), nullable=False),
        sa.Column("body", JSON_TEXT, nullable=False),
        sa.Column(
            "status",
            identifier(16),
            nullable=False,
            comment="pending, delivered, failed; pending too when the outbox gave it up",
        ),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("created_at", UTC_DATETIME, nullable=False),
        sa.Column("attempted_at", UTC_DATETIME, nullable=True),
        sa.Column("duration_ms", sa.Integer(), nullable=True),
        sa.Column("response_status", sa.Integer(), nullable=True, comment="NULL: no whole answer came"),
        sa.Column("response_headers", JSON_TEXT, nullable=True, comment="a few, cut short"),
        sa.Column("failure", sa.String(200), nullable=True, comment="why the last attempt failed"),
        sa.Column("expires_at", UTC_DATETIME, nullable=False),
        sa.Column(
            "organization_id", identifier(8), nullable=False, comment="routing key of the organization"
        ),
        sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application"),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_webhook_deliveries"),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name="fk_webhook_deliveries_organization"
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "webhook_id"],
            ["webhooks.organization_id", "webhooks.id"],
            name="fk_webhook_deliveries_webhook_id",
        ),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_webhook_deliveries_expires_at", "webhook_deliveries", ["expires_at"])
    op.create_index(
        "ix_webhook_deliveries_webhook", "webhook_deliveries", ["organization_id", "webhook_id", "id"]
    )
    op.create_index(
        "ix_client_registrations_access", "client_registrations", ["organization_id", "access_digest"]
    )


def downgrade() -> None:
    op.drop_index("ix_client_registrations_access", "client_registrations")
    op.drop_table("webhook_deliveries")
    op.drop_table("webhooks")
