"""An index of the clients of each owner.

Revision: 0048
Follows: 0047
"""

from alembic import op

revision = "0048"
down_revision = "0047"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_clients_owner", "clients", ["organization_id", "created_by_user_id", "id"])


def downgrade() -> None:
    op.drop_index("ix_clients_owner", table_name="clients")
