"""Imports of people, with where each one stands.

Revision: 0017
Follows: 0016
"""

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    pass


def downgrade() -> None:
    pass
