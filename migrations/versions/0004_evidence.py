"""Audit, outbox, revocation log, idempotency, leases, instance facts.

Revision: 0004
Follows: 0003
"""

import sqlalchemy as sa
from alembic import op

from migrations.column_types import DIGEST, JSON_TEXT, SEALED, TABLE_OPTIONS, UTC_DATETIME, UUID, identifier

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "audit_events",
        sa.Column("at", UTC_DATETIME, nullable=False),
        sa.Column("action", identifier(64), nullable=False, comment="past tense: client.registered"),
        sa.Column("actor_kind", identifier(16), nullable=False),
        sa.Column("actor_id", identifier(64), nullable=True, comment="public id"),
        sa.Column("actor_label", sa.String(200), nullable=False, comment="e-mail or client name at the time"),
        sa.Column("actor_organization", identifier(8), nullable=False, comment="differs from organization_id when root acts"),
        sa.Column("target_type", identifier(32), nullable=True),
        sa.Column("target_id", identifier(64), nullable=True),
        sa.Column("before", JSON_TEXT, nullable=True),
        sa.Column("after", JSON_TEXT, nullable=True),
        sa.Column("address", identifier(64), nullable=True),
        sa.Column("request_id", identifier(64), nullable=True),
        sa.Column("organization_id", identifier(8), nullable=False, comment="routing key of the organization"),
        sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application"),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_audit_events"),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], name="fk_audit_events_organization"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_audit_events_action", "audit_events", ["organization_id", "action", "id"])
    op.create_index("ix_audit_events_actor", "audit_events", ["organization_id", "actor_id", "id"])
    op.create_index("ix_audit_events_at", "audit_events", ["at"])
    op.create_index("ix_audit_events_target", "audit_events", ["organization_id", "target_id", "id"])
    op.create_table(
        "outbox",
        sa.Column("kind", identifier(64), nullable=False),
        sa.Column(
            "receiver",
            identifier(64),
            nullable=False,
            comment="public id of who gets it: one that does not answer is left alone for a while",
        ),
        sa.Column("payload", JSON_TEXT, nullable=False),
        sa.Column("created_at", UTC_DATETIME, nullable=False),
        sa.Column(
            "available_at",
            UTC_DATETIME,
            nullable=False,
            comment="when it is tried next; while it is being delivered, the end of that lease",
        ),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("done_at", UTC_DATETIME, nullable=True),
        sa.Column("outcome", identifier(16), nullable=True, comment="delivered, refused, given_up"),
        sa.Column("expires_at", UTC_DATETIME, nullable=False, comment="when nobody tries any more"),
        sa.Column("organization_id", identifier(8), nullable=False, comment="routing key of the organization"),
        sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application"),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_outbox"),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], name="fk_outbox_organization"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_outbox_due", "outbox", ["done_at", "available_at"])
    op.create_index("ix_outbox_receiver", "outbox", ["organization_id", "receiver", "done_at"])
    op.create_index("ix_outbox_expires_at", "outbox", ["expires_at"])
    op.create_table(
        "revocation_log",
        sa.Column("kind", identifier(16), nullable=False, comment="token, grant, client, credential, user, organization"),
        sa.Column("subject", identifier(32), nullable=False, comment="row id, or the organization's key"),
        sa.Column("not_before", UTC_DATETIME, nullable=False, comment="what was issued before is dead"),
        sa.Column("expires_at", UTC_DATETIME, nullable=False, comment="when nothing it names can still be alive"),
        sa.Column("organization_id", identifier(8), nullable=False, comment="routing key of the organization"),
        sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application"),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_revocation_log"),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], name="fk_revocation_log_organization"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_revocation_log_expires_at", "revocation_log", ["expires_at"])
    op.create_table(
        "idempotency_keys",
        sa.Column("organization_id", identifier(8), nullable=False),
        sa.Column("key_digest", DIGEST, nullable=False, comment="key, caller and route"),
        sa.Column("body_digest", DIGEST, nullable=False),
        sa.Column("status", sa.Integer(), nullable=True, comment="NULL while the first one is under way"),
        sa.Column("response", SEALED, nullable=True),
        sa.Column("created_at", UTC_DATETIME, nullable=False),
        sa.Column("expires_at", UTC_DATETIME, nullable=False),
        sa.PrimaryKeyConstraint("organization_id", "key_digest", name="pk_idempotency_keys"),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], name="fk_idempotency_keys_organization"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_idempotency_keys_expires_at", "idempotency_keys", ["expires_at"])
    op.create_table(
        "view_changes",
        sa.Column("at", UTC_DATETIME, nullable=False),
        sa.Column("is_for_all", sa.Boolean(), nullable=False, comment="it concerns every organization, not this one alone"),
        sa.Column("organization_id", identifier(8), nullable=False, comment="routing key of the organization"),
        sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application"),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_view_changes"),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], name="fk_view_changes_organization"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_view_changes_at", "view_changes", ["at"])
    op.create_table(
        "used_identifiers",
        sa.Column("organization_id", identifier(8), nullable=False),
        sa.Column("digest", DIGEST, nullable=False, comment="purpose, whose it is, and value"),
        sa.Column("attempt", UUID, nullable=False, comment="which attempt wrote it: tells a lost answer from a replay"),
        sa.Column("expires_at", UTC_DATETIME, nullable=False),
        sa.PrimaryKeyConstraint("organization_id", "digest", name="pk_used_identifiers"),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], name="fk_used_identifiers_organization"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_used_identifiers_expires_at", "used_identifiers", ["expires_at"])
    op.create_table(
        "leases",
        sa.Column("name", identifier(64), nullable=False),
        sa.Column("holder", identifier(64), nullable=False),
        sa.Column("expires_at", UTC_DATETIME, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_leases"),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "instance_facts",
        sa.Column("name", identifier(64), nullable=False),
        sa.Column("value", JSON_TEXT, nullable=False),
        sa.Column("updated_at", UTC_DATETIME, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_instance_facts"),
        **TABLE_OPTIONS,
    )


def downgrade() -> None:
    op.drop_table("instance_facts")
    op.drop_table("leases")
    op.drop_table("used_identifiers")
    op.drop_table("view_changes")
    op.drop_table("idempotency_keys")
    op.drop_table("revocation_log")
    op.drop_table("outbox")
    op.drop_table("audit_events")
