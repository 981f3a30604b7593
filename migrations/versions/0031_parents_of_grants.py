"""An index of its own for the foreign key of a grant's user.

MariaDB checks a foreign key, and locks the row that it refers to, whenever an UPDATE changes a column of the index that
it uses for the key. Revoking a grant locked its user like this. The first index that fits is used, so the other one is
created again.

Revision: 0031
Follows: 0030
"""

from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None

ACTIVE = ["organization_id", "user_id", "client_id", "revoked_at", "expires_at"]


def upgrade() -> None:
    op.create_index("ix_grants_user", "grants", ACTIVE[:2])
    op.drop_index("ix_grants_active", "grants")
    op.create_index("ix_grants_active", "grants", ACTIVE)


def downgrade() -> None:
    op.drop_index("ix_grants_user", "grants")
