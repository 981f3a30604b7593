"""Logos of clients, fetched once, and of organizations, uploaded; both made anew here.

Revision: 0013
Follows: 0012
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

from migrations.column_types import DIGEST, TABLE_OPTIONS, UTC_DATETIME, UUID, identifier

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

PICTURE = sa.LargeBinary().with_variant(mysql.MEDIUMBLOB(), "mysql", "mariadb")


def upgrade() -> None:
    op.create_table(
        "client_logos",
        sa.Column("source_digest", DIGEST, nullable=False, comment="of the logo_uri it was fetched from"),
        sa.Column("digest", DIGEST, nullable=False, comment="of the picture: its name on our pages"),
        sa.Column("picture", PICTURE, nullable=False, comment="PNG that we made, at most 256x256"),
        sa.Column("fetched_at", UTC_DATETIME, nullable=False),
        sa.Column("organization_id", identifier(8), nullable=False, comment="routing key of the organization"),
        sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application"),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_client_logos"),
        sa.ForeignKeyConstraint(["organization_id", "id"], ["clients.organization_id", "clients.id"], name="fk_client_logos_client"),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], name="fk_client_logos_organization"),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "organization_logos",
        sa.Column("digest", DIGEST, nullable=False, comment="of the picture: its name on our pages"),
        sa.Column("picture", PICTURE, nullable=False, comment="PNG that we made, at most 256x256"),
        sa.Column("created_at", UTC_DATETIME, nullable=False),
        sa.Column("organization_id", identifier(8), nullable=False, comment="routing key of the organization"),
        sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application"),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_organization_logos"),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], name="fk_organization_logos_organization"),
        sa.UniqueConstraint("organization_id", "digest", name="uq_organization_logos_organization_id_digest"),
        **TABLE_OPTIONS,
    )


def downgrade() -> None:
    op.drop_table("organization_logos")
    op.drop_table("client_logos")
