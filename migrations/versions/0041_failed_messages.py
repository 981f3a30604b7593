"""A message of the outbox says whether it waits because its receiver has failed. Only the comment changes.

SQLite does not store comments.

Revision: 0041
Follows: 0040
"""

from alembic import op

from migrations.column_types import identifier

revision = "0041"
down_revision = "0040"
branch_labels = None
depends_on = None

OLD, NEW = (
    "delivered, refused, given_up",
    "delivered, refused, given_up; while pending failed, waiting with one that has, retrying or immediate",
)


def upgrade() -> None:
    if op.get_bind().dialect.name != "sqlite":
        op.alter_column(
            "outbox",
            "outcome",
            existing_type=identifier(16),
            nullable=True,
            comment=NEW,
            existing_comment=OLD,
        )


def downgrade() -> None:
    """Leave the comment: no release reads it."""
