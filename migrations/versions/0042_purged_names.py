"""Erase the names of organizations that were purged, and who created them: they were kept until now.

Revision: 0042
Follows: 0041
"""

from alembic import op
from sqlalchemy import column, null, table, update

revision = "0042"
down_revision = "0041"
branch_labels = None
depends_on = None


def upgrade() -> None:
    organizations = table("organizations", *map(column, ("status", "name", "created_by", "settings_updated_by")))
    op.execute(
        update(organizations)
        .where(organizations.c.status == b"purged")
        .values(name="", created_by=null(), settings_updated_by=null())
    )


def downgrade() -> None:
    """Nothing brings the names back."""
