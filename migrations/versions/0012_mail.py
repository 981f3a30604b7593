"""Mail: proofs of addresses and resets of passwords.

Revision: 0012
Follows: 0011
"""

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    pass


def downgrade() -> None:
    pass
