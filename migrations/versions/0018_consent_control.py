"""What administrators decide about clients that members ask for, and ends of consents.

Revision: 0018
Follows: 0017
"""

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    pass


def downgrade() -> None:
    pass
