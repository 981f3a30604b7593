"""Moves of organizations between cells: the pause of writes at the source, and where an organization went.

The release before ignores both columns: run the same release in every cell before you move an organization.

Revision: 0037
Follows: 0036
"""

import sqlalchemy as sa
from alembic import op

from migrations.column_types import UTC_DATETIME, identifier

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "organizations",
        sa.Column("moving_until", UTC_DATETIME, nullable=True, comment="until then it is answered with 503: it is being moved"),
    )
    op.add_column(
        "organizations",
        sa.Column("moved_to", identifier(64), nullable=True, comment="the cell that serves it now"),
    )


def downgrade() -> None:
    op.drop_column("organizations", "moved_to")
    op.drop_column("organizations", "moving_until")
