"""Identity providers of organizations, and the accounts there that users sign in with.

Revision: 0043
Follows: 0042
"""

import sqlalchemy as sa
from alembic import op

from migrations.column_types import JSON_TEXT, SEALED, TABLE_OPTIONS, UTC_DATETIME, UUID, identifier

revision = "0043"
down_revision = "0042"
branch_labels = None
depends_on = None


def _key_columns() -> tuple[sa.Column, ...]:
    return (
        sa.Column(
            "organization_id", identifier(8), nullable=False, comment="routing key of the organization"
        ),
        sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application"),
    )


def upgrade() -> None:
    op.create_table(
        "identity_providers",
        sa.Column("slug", identifier(40), nullable=False, comment="its name in URLs, which never changes"),
        sa.Column("name", sa.String(60), nullable=False, comment="shown on the button to sign in"),
        sa.Column("issuer", identifier(255), nullable=False),
        sa.Column(
            "client_id", identifier(255), nullable=False, comment="of this organization at the provider"
        ),
        sa.Column("sealed_secret", SEALED, nullable=False, comment="client secret at the provider"),
        sa.Column("scopes", JSON_TEXT, nullable=False, comment="scopes to request"),
        sa.Column(
            "create_users", sa.Boolean(), nullable=False, comment="whoever signs in first gets an account"
        ),
        sa.Column(
            "link_users",
            sa.Boolean(),
            nullable=False,
            comment="whoever has a user's verified email becomes that user",
        ),
        sa.Column(
            "trust_emails", sa.Boolean(), nullable=False, comment="emails without email_verified are verified"
        ),
        sa.Column("status", identifier(16), nullable=False, comment="enabled, disabled"),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("created_at", UTC_DATETIME, nullable=False),
        sa.Column("created_by", sa.String(200), nullable=True),
        sa.Column("updated_at", UTC_DATETIME, nullable=False),
        *_key_columns(),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_identity_providers"),
        sa.UniqueConstraint("organization_id", "slug", name="uq_identity_providers_organization_id_slug"),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "linked_identities",
        sa.Column("provider_id", UUID, nullable=False),
        sa.Column("user_id", UUID, nullable=False),
        sa.Column("subject", identifier(255), nullable=False, comment="sub of its ID tokens"),
        sa.Column("email", sa.String(254), nullable=True, comment="email there at the last sign-in"),
        sa.Column("created_at", UTC_DATETIME, nullable=False),
        sa.Column("last_used_at", UTC_DATETIME, nullable=True),
        *_key_columns(),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_linked_identities"),
        sa.UniqueConstraint(
            "organization_id",
            "provider_id",
            "subject",
            name="uq_linked_identities_organization_id_provider_id_subject",
        ),
        sa.UniqueConstraint(
            "organization_id",
            "user_id",
            "provider_id",
            name="uq_linked_identities_organization_id_user_id_provider_id",
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "provider_id"],
            ["identity_providers.organization_id", "identity_providers.id"],
            name="fk_linked_identities_provider_id",
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "user_id"],
            ["users.organization_id", "users.id"],
            name="fk_linked_identities_user_id",
        ),
        **TABLE_OPTIONS,
    )
    op.create_index(
        "ix_linked_identities_provider", "linked_identities", ["organization_id", "provider_id", "id"]
    )


def downgrade() -> None:
    op.drop_table("linked_identities")
    op.drop_table("identity_providers")
