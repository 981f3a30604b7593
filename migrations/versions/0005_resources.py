"""Resources: the APIs of an organization and their scopes.

Revision: 0005
Follows: 0004
"""

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    pass


def downgrade() -> None:
    pass
