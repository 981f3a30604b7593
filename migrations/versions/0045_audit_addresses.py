"""An index for what was done from one IP address.

Revision: 0045
Follows: 0044
"""

from alembic import op

revision = "0045"
down_revision = "0044"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_audit_events_address", "audit_events", ["organization_id", "address", "id"])


def downgrade() -> None:
    op.drop_index("ix_audit_events_address", "audit_events")
