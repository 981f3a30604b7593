"""Evidence: the hash chain of audit events, webhooks.

Revision: 0013
Follows: 0012
"""

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    pass


def downgrade() -> None:
    pass
