"""Receipts of wider revocations, and the moments before which nothing counts.

Revision: 0021
Follows: 0020
"""

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    pass


def downgrade() -> None:
    pass
