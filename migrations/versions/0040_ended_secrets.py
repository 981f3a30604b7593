"""An index that finds the secrets that were revoked long ago, which the janitor deletes.

Revision: 0040
Follows: 0039
"""

from alembic import op

revision = "0040"
down_revision = "0039"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_client_credentials_revoked_at", "client_credentials", ["revoked_at"])


def downgrade() -> None:
    op.drop_index("ix_client_credentials_revoked_at", table_name="client_credentials")
