"""Second factors: authenticator apps, recovery codes, and sign-ins that wait for one.

Revision: 0014
Follows: 0013
"""

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    pass


def downgrade() -> None:
    pass
