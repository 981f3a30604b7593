"""When a refresh token was last used, and what of an app's wishes a person left out.

Both are NULL for what stood before: a family without the moment ends as was written down, and a consent without
declined scopes asks for them once more. The release before writes neither.

Revision: 0022
Follows: 0021
"""

import sqlalchemy as sa
from alembic import op

from migrations.column_types import UTC_DATETIME

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

REFRESHED = "latest use of the refresh token; NULL without one, and where it was not kept yet"
DECLINED = "optional scopes that were asked for and left out, space-separated"


def upgrade() -> None:
    op.add_column("grants", sa.Column("refreshed_at", UTC_DATETIME, nullable=True, comment=REFRESHED))
    op.add_column("consents", sa.Column("declined", sa.String(4000), nullable=True, comment=DECLINED))


def downgrade() -> None:
    with op.batch_alter_table("consents") as batch:
        batch.drop_column("declined")
    with op.batch_alter_table("grants") as batch:
        batch.drop_column("refreshed_at")
