"""An index that finds a user's active grants of a client without reading those that have ended.

It replaces the index of its first three columns, which the foreign key of ``user_id`` can do without.

Revision: 0029
Follows: 0028
"""

from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

PAIR = ["organization_id", "user_id", "client_id"]


def upgrade() -> None:
    op.create_index("ix_grants_active", "grants", [*PAIR, "revoked_at", "expires_at"])
    op.drop_index("ix_grants_user", "grants")


def downgrade() -> None:
    op.create_index("ix_grants_user", "grants", PAIR)
    op.drop_index("ix_grants_active", "grants")
