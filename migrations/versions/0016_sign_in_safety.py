"""Known devices, and addresses that wait to be confirmed.

Revision: 0016
Follows: 0015
"""

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    pass


def downgrade() -> None:
    pass
