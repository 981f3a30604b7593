"""Resources: the APIs of an organization and their scopes.

Revision: 0005
Follows: 0004
"""

import sqlalchemy as sa
from alembic import op

from migrations.column_types import TABLE_OPTIONS, UTC_DATETIME, UUID, identifier

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "resources",
        sa.Column("identifier", identifier(255), nullable=False, comment="resource indicator: an absolute URI, the audience of its tokens; never changed"),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("name_key", identifier(400), nullable=False, comment="case-folded name, for order and search"),
        sa.Column("description", sa.String(1000), nullable=False),
        sa.Column("access_token_format", identifier(16), nullable=True, comment="opaque or jwt; NULL: as client or organization choose"),
        sa.Column("access_token_ttl_seconds", sa.Integer(), nullable=True, comment="NULL: the organization's"),
        sa.Column("status", identifier(16), nullable=False, comment="active, disabled"),
        sa.Column("version", sa.Integer(), nullable=False, comment="raised by each change of it or its scopes"),
        sa.Column("created_at", UTC_DATETIME, nullable=False),
        sa.Column("created_by", sa.String(200), nullable=True),
        sa.Column("created_by_user_id", UUID, nullable=True, comment="may be a root user, hence no foreign key"),
        sa.Column("updated_at", UTC_DATETIME, nullable=False),
        sa.Column("organization_id", identifier(8), nullable=False, comment="routing key of the organization"),
        sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application"),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_resources"),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], name="fk_resources_organization"),
        sa.UniqueConstraint("organization_id", "identifier", name="uq_resources_organization_id_identifier"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_resources_name", "resources", ["organization_id", "name_key", "id"])
    with op.batch_alter_table("scopes") as scopes:
        scopes.add_column(sa.Column("resource_id", UUID, nullable=True, comment="the API it belongs to; NULL: of any"))
        scopes.create_index("ix_scopes_resource", ["organization_id", "resource_id"])
        scopes.create_foreign_key(
            "fk_scopes_resource_id", "resources", ["organization_id", "resource_id"], ["organization_id", "id"]
        )


def downgrade() -> None:
    with op.batch_alter_table("scopes") as scopes:
        scopes.drop_constraint("fk_scopes_resource_id", type_="foreignkey")
        scopes.drop_index("ix_scopes_resource")
        scopes.drop_column("resource_id")
    op.drop_table("resources")
