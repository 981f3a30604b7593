"""Who sent an invitation: it is valid while its sender could send it.

NULL for invitations from before and for those of the service itself, which do not depend on anybody. The release before
does not read it.

Revision: 0030
Follows: 0029
"""

import sqlalchemy as sa
from alembic import op

from migrations.column_types import identifier

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None

COMMENT = "usr_ or cli_ id of the sender, who must still be able to send it; none if the service did"


def upgrade() -> None:
    op.add_column("invitations", sa.Column("created_by_id", identifier(64), nullable=True, comment=COMMENT))


def downgrade() -> None:
    with op.batch_alter_table("invitations") as batch:
        batch.drop_column("created_by_id")
