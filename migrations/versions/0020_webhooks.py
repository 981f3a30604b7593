"""Webhooks and their deliveries; leak reports.

Revision: 0020
Follows: 0019
"""

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    pass


def downgrade() -> None:
    pass
