"""JWT access tokens that are not stored: how each API keeps its tokens, and status lists (draft-ietf-oauth-status-list).

Existing APIs store their tokens, as before. The release before rejects tokens that are not stored, as unknown, so APIs
should choose it once every server runs this release.

Revision: 0032
Follows: 0031
"""

import sqlalchemy as sa
from alembic import op

from migrations.column_types import TABLE_OPTIONS, UTC_DATETIME, UUID, identifier

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


def _keys() -> tuple[sa.Column, sa.Column]:
    return (
        sa.Column("organization_id", identifier(8), nullable=False, comment="routing key of the organization"),
        sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application"),
    )


def upgrade() -> None:
    op.add_column(
        "resources",
        sa.Column(
            "access_token_storage",
            identifier(16),
            nullable=False,
            server_default="stored",
            comment="stored, status_list, none: how JWT access tokens are kept",
        ),
    )
    op.create_table(
        "status_lists",
        *_keys(),
        sa.Column("created_at", UTC_DATETIME, nullable=False),
        sa.Column("expires_at", UTC_DATETIME, nullable=False, comment="when no token in it can still be valid"),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_status_lists"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_status_lists_expires_at", "status_lists", ["expires_at"])
    op.create_table(
        "status_list_entries",
        *_keys(),
        sa.Column("list_id", UUID, nullable=False),
        sa.Column("first_index", sa.Integer(), nullable=False),
        sa.Column("indexes", sa.Integer(), nullable=False, comment="how many"),
        sa.Column("client_id", UUID, nullable=False),
        sa.Column("grant_id", UUID, nullable=True),
        sa.Column("credential_id", UUID, nullable=True),
        sa.Column("scope", sa.String(4000), nullable=False),
        sa.Column("audience", sa.String(3200), nullable=False),
        sa.Column("issued_at", UTC_DATETIME, nullable=False, comment="of several tokens, of the first one"),
        sa.Column("expires_at", UTC_DATETIME, nullable=False),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_status_list_entries"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_status_list_entries_list", "status_list_entries", ["organization_id", "list_id"])
    op.create_index("ix_status_list_entries_expires_at", "status_list_entries", ["expires_at"])


def downgrade() -> None:
    op.drop_table("status_list_entries")
    op.drop_table("status_lists")
    op.drop_column("resources", "access_token_storage")
