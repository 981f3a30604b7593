"""Dynamic registration: initial access tokens, registration access tokens, metadata documents.

Revision: 0008
Follows: 0007
"""

import sqlalchemy as sa
from alembic import op

from migrations.column_types import DIGEST, TABLE_OPTIONS, UTC_DATETIME, UUID, identifier

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "registration_tokens",
        sa.Column("digest", DIGEST, nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("hint", identifier(4), nullable=False, comment="last four characters of the random part"),
        sa.Column("max_uses", sa.Integer(), nullable=True, comment="NULL: as often as the organization has room"),
        sa.Column("uses", sa.Integer(), nullable=False),
        sa.Column("created_at", UTC_DATETIME, nullable=False),
        sa.Column("created_by", sa.String(200), nullable=True),
        sa.Column("expires_at", UTC_DATETIME, nullable=False),
        sa.Column("last_used_at", UTC_DATETIME, nullable=True),
        sa.Column("revoked_at", UTC_DATETIME, nullable=True),
        sa.Column("organization_id", identifier(8), nullable=False, comment="routing key of the organization"),
        sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application"),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_registration_tokens"),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], name="fk_registration_tokens_organization"),
        sa.UniqueConstraint("organization_id", "digest", name="uq_registration_tokens_organization_id_digest"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_registration_tokens_expires_at", "registration_tokens", ["expires_at"])
    op.create_table(
        "client_registrations",
        sa.Column("access_digest", DIGEST, nullable=True, comment="registration access token"),
        sa.Column("registration_token_id", UUID, nullable=True, comment="the initial access token, whose row may be gone"),
        sa.Column("address_digest", DIGEST, nullable=True, comment="of the document's address; NULL once the client has ended"),
        sa.Column("fetched_at", UTC_DATETIME, nullable=True, comment="when the document was last read"),
        sa.Column("fresh_until", UTC_DATETIME, nullable=True),
        sa.Column("idle_check_at", UTC_DATETIME, nullable=True, comment="when to look whether it is still used; NULL once it has ended"),
        sa.Column("organization_id", identifier(8), nullable=False, comment="routing key of the organization"),
        sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application"),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_client_registrations"),
        sa.ForeignKeyConstraint(["organization_id", "id"], ["clients.organization_id", "clients.id"], name="fk_client_registrations_client"),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], name="fk_client_registrations_organization"),
        sa.UniqueConstraint("organization_id", "address_digest", name="uq_client_registrations_organization_id_address_digest"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_client_registrations_idle", "client_registrations", ["idle_check_at"])


def downgrade() -> None:
    op.drop_table("client_registrations")
    op.drop_table("registration_tokens")
