"""Users and groups that identity providers manage by SCIM, and the tokens with which they do.

Revision: 0047
Follows: 0046
"""

import sqlalchemy as sa
from alembic import op

from migrations.column_types import DIGEST, TABLE_OPTIONS, UTC_DATETIME, UUID, identifier

revision = "0047"
down_revision = "0046"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "provisioning_tokens",
        sa.Column("provider_id", UUID, nullable=False),
        sa.Column("digest", DIGEST, nullable=False),
        sa.Column("hint", identifier(4), nullable=False, comment="last four characters of the random part"),
        sa.Column("created_at", UTC_DATETIME, nullable=False),
        sa.Column("created_by", sa.String(200), nullable=True),
        sa.Column("last_used_at", UTC_DATETIME, nullable=True, comment="updated at most once a minute"),
        sa.Column(
            "organization_id", identifier(8), nullable=False, comment="routing key of the organization"
        ),
        sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application"),
        sa.ForeignKeyConstraint(
            ["organization_id", "provider_id"],
            ["identity_providers.organization_id", "identity_providers.id"],
            name="fk_provisioning_tokens_provider_id",
        ),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_provisioning_tokens"),
        sa.UniqueConstraint("organization_id", "digest", name="uq_provisioning_tokens_organization_id_digest"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_provisioning_tokens_provider", "provisioning_tokens", ["organization_id", "provider_id"])
    for table, noun in (("users", "user"), ("user_groups", "group")):
        op.add_column(
            table,
            sa.Column(
                "provisioned_by",
                UUID,
                comment=f"identity provider that manages the {noun} by SCIM; no foreign key, because it may exist longer",
            ),
        )
        op.add_column(table, sa.Column("external_id", identifier(255), comment=f"its name for the {noun}"))
        op.create_index(
            f"ix_{table}_external_id", table, ["organization_id", "provisioned_by", "external_id"], unique=True
        )
    op.add_column(
        "users",
        sa.Column(
            "user_name", identifier(320), comment="userName there in lower case, unless it is the email"
        ),
    )
    op.create_index(
        "ix_users_user_name", "users", ["organization_id", "provisioned_by", "user_name"], unique=True
    )


def downgrade() -> None:
    op.drop_index("ix_users_user_name", "users")
    op.drop_column("users", "user_name")
    for table in ("user_groups", "users"):
        op.drop_index(f"ix_{table}_external_id", table)
        op.drop_column(table, "external_id")
        op.drop_column(table, "provisioned_by")
    op.drop_table("provisioning_tokens")
