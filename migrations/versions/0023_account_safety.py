"""Accounts that nobody vouched for, and wrong codes counted by browser.

Revision: 0023
Follows: 0022
"""

import sqlalchemy as sa
from alembic import op

from migrations.column_types import UTC_DATETIME, UUID

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

NO, NONE_YET = sa.text("0"), sa.text("0")
COLUMNS = (
    ("users", "made_unproven", sa.Boolean(), NO, "made by whoever typed the address: what was set up in it ends when a mailed link proves that address"),
    ("known_browsers", "factor_given_at", UTC_DATETIME, None, "when a second factor was last given in it; NULL: never"),
    ("known_browsers", "code_failures", sa.Integer(), NONE_YET, "wrong codes in a row"),
    ("known_browsers", "code_failed_at", UTC_DATETIME, None, "the last of them"),
    ("pending_sign_ins", "known_browser_id", UUID, None, "the known browser of its owner in which it was begun; NULL: another; no foreign key: it outlives that row by minutes"),
    ("second_factor_tries", "total", sa.Integer(), NONE_YET, "wrong codes since the last right one or a month without any, however slowly they came"),
)


def upgrade() -> None:
    # A value that the database knows lets the release before go on writing, and no table is rebuilt.
    for table, column, kind, default, comment in COLUMNS:
        op.add_column(
            table, sa.Column(column, kind, nullable=default is None, server_default=default, comment=comment)
        )
    # Who made those that are there is not known any more: what nobody has proven counts as made by anybody.
    op.execute(
        "UPDATE users SET made_unproven = 1 WHERE email_verified = 0",
        execution_options={"across_organizations": True},
    )


def downgrade() -> None:
    for table, column, *_ in reversed(COLUMNS):
        op.drop_column(table, column)
