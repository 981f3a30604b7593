"""Groups whose members identity providers decide: the claim with a user's groups, and its values for each group.

The release before does not read them.

Revision: 0044
Follows: 0043
"""

import sqlalchemy as sa
from alembic import op

from migrations.column_types import JSON_TEXT

revision = "0044"
down_revision = "0043"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "identity_providers",
        sa.Column(
            "groups_claim",
            sa.String(100),
            nullable=False,
            server_default="groups",
            comment="claim with the groups of a user there",
        ),
    )
    op.add_column(
        "user_groups",
        sa.Column(
            "provider_groups",
            JSON_TEXT,
            nullable=True,
            comment="groups at identity providers whose users are members, or none",
        ),
    )


def downgrade() -> None:
    with op.batch_alter_table("user_groups") as batch:
        batch.drop_column("provider_groups")
    with op.batch_alter_table("identity_providers") as batch:
        batch.drop_column("groups_claim")
