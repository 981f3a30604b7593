"""Bounds that the instance sets to what organizations may choose.

Revision: 0019
Follows: 0018
"""

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    pass


def downgrade() -> None:
    pass
