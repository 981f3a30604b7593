"""Bounds that the instance sets to what organizations may choose.

Revision: 0019
Follows: 0018
"""

import sqlalchemy as sa
from alembic import op

from migrations.column_types import JSON_TEXT, TABLE_OPTIONS, UTC_DATETIME, identifier

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "settings_ceilings",
        sa.Column("name", identifier(16), nullable=False, comment="of the one row: instance"),
        sa.Column("bounds", JSON_TEXT, nullable=False, comment="by path: min, max, allowed"),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("updated_at", UTC_DATETIME, nullable=False),
        sa.Column("updated_by", sa.String(200), nullable=True),
        sa.Column("factor_demanded_at", UTC_DATETIME, nullable=True, comment="since when a ceiling demands second factors"),
        sa.PrimaryKeyConstraint("name", name="pk_settings_ceilings"),
        **TABLE_OPTIONS,
    )


def downgrade() -> None:
    op.drop_table("settings_ceilings")
