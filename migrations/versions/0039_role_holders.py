"""An index that finds the few administrators among many members.

Revision: 0039
Follows: 0038
"""

from alembic import op

revision = "0039"
down_revision = "0038"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_role_assignments_role", "role_assignments", ["organization_id", "role", "id"])


def downgrade() -> None:
    op.drop_index("ix_role_assignments_role", table_name="role_assignments")
