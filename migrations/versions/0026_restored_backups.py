"""What a restored backup must not revive: cutoffs of an organization, and secrets that were confirmed since.

NULL for what was there before: nothing was restored, and nothing has to be confirmed. The release before reads neither.

Revision: 0026
Follows: 0023
"""

import sqlalchemy as sa
from alembic import op

from migrations.column_types import UTC_DATETIME

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

COLUMNS = (
    ("organizations", "restored_at", "when the database was restored from a backup: links, codes and requests from before are invalid"),
    ("organizations", "secrets_not_before", "client secrets created before are blocked until they are confirmed"),
    ("organizations", "passwords_not_before", "passwords set before are not accepted: their users reset them"),
    ("client_credentials", "confirmed_at", "when a secret from before a restore was allowed again"),
)  # fmt: skip


def upgrade() -> None:
    for table, name, comment in COLUMNS:
        op.add_column(table, sa.Column(name, UTC_DATETIME, nullable=True, comment=comment))


def downgrade() -> None:
    for table in ("client_credentials", "organizations"):
        with op.batch_alter_table(table) as batch:
            for of_table, name, _ in COLUMNS:
                if of_table == table:
                    batch.drop_column(name)
