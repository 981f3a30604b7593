"""Dynamic registration: initial access tokens, registration access tokens, metadata documents.

Revision: 0008
Follows: 0007
"""

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    pass


def downgrade() -> None:
    pass
