"""Groups, roles of users in apps, custom attributes, and the scopes that release groups and roles.

Existing organizations get the scopes ``groups`` and ``roles``, unless they have scopes of these names, which keep their
texts. The release before ignores all of it.

Revision: 0028
Follows: 0027
"""

import secrets
import time
from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

from migrations.column_types import JSON_TEXT, TABLE_OPTIONS, UTC_DATETIME, UUID, identifier

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

SCOPES = (
    ("groups", "See your groups", "The groups that you belong to."),
    ("roles", "See your roles in the app", "The roles that you have in this app."),
)
PART = 500
ACROSS = {"across_organizations": True}
ORGANIZATIONS = sa.table(
    "organizations", sa.column("id", identifier(8)), sa.column("status", identifier(16))
)
SCOPE_TABLE = sa.table(
    "scopes",
    sa.column("organization_id", identifier(8)),
    sa.column("id", UUID),
    sa.column("name", identifier(128)),
    sa.column("title", sa.String()),
    sa.column("description", sa.String()),
    sa.column("is_identity", sa.Boolean()),
    sa.column("version", sa.Integer()),
    sa.column("created_at", UTC_DATETIME),
)


def _organization_id() -> sa.Column:
    return sa.Column("organization_id", identifier(8), nullable=False, comment="routing key of the organization")


def _id() -> sa.Column:
    return sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application")


def _reference(table: str, column: str, target: str) -> sa.ForeignKeyConstraint:
    columns = [f"{target}.organization_id", f"{target}.id"]
    return sa.ForeignKeyConstraint(["organization_id", column], columns, name=f"fk_{table}_{column}")


def upgrade() -> None:
    op.add_column(
        "users",
        sa.Column("attributes", JSON_TEXT, nullable=True, comment="values of the organization's custom attributes by key"),
    )
    op.create_table(
        "user_groups",
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("name_key", identifier(400), nullable=False, comment="case-folded name, for order, search and uniqueness"),
        sa.Column("description", sa.String(500), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("created_at", UTC_DATETIME, nullable=False),
        sa.Column("created_by", sa.String(200), nullable=True),
        sa.Column("updated_at", UTC_DATETIME, nullable=False),
        _organization_id(),
        _id(),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_user_groups"),
        sa.UniqueConstraint("organization_id", "name_key", name="uq_user_groups_organization_id_name_key"),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "group_members",
        sa.Column("organization_id", identifier(8), nullable=False),
        sa.Column("group_id", UUID, nullable=False),
        sa.Column("user_id", UUID, nullable=False),
        sa.Column("created_at", UTC_DATETIME, nullable=False),
        sa.Column("created_by", sa.String(200), nullable=True),
        sa.PrimaryKeyConstraint("organization_id", "group_id", "user_id", name="pk_group_members"),
        _reference("group_members", "group_id", "user_groups"),
        _reference("group_members", "user_id", "users"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_group_members_user", "group_members", ["organization_id", "user_id"])
    op.create_table(
        "app_role_assignments",
        sa.Column("client_id", UUID, nullable=False),
        sa.Column("role", identifier(64), nullable=False, comment="key of the role"),
        sa.Column("holder_id", UUID, nullable=False, comment="user_id or group_id, whichever is set"),
        sa.Column("user_id", UUID, nullable=True),
        sa.Column("group_id", UUID, nullable=True),
        sa.Column("created_at", UTC_DATETIME, nullable=False),
        sa.Column("created_by", sa.String(200), nullable=True),
        _organization_id(),
        _id(),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_app_role_assignments"),
        sa.UniqueConstraint("organization_id", "client_id", "role", "holder_id", name="uq_app_role_assignments_once"),
        _reference("app_role_assignments", "client_id", "clients"),
        _reference("app_role_assignments", "user_id", "users"),
        _reference("app_role_assignments", "group_id", "user_groups"),
        **TABLE_OPTIONS,
    )
    for holder in ("user", "group"):
        op.create_index(
            f"ix_app_role_assignments_{holder}", "app_role_assignments", ["organization_id", f"{holder}_id"]
        )
    # A purged organization keeps no row but its own.
    kept = sa.select(ORGANIZATIONS.c.id).where(ORGANIZATIONS.c.status != b"purged")
    organizations = op.get_bind().scalars(kept).all()
    for name, title, description in SCOPES:
        has_scope = sa.select(SCOPE_TABLE.c.organization_id).where(SCOPE_TABLE.c.name == name.encode())
        taken = {bytes(key) for key in op.get_bind().scalars(has_scope, execution_options=ACROSS)}
        rows = [
            {
                "organization_id": key,
                "id": _new_id(),
                "name": name.encode(),
                "title": title,
                "description": description,
                "is_identity": True,
                "version": 1,
                "created_at": datetime.now(UTC).replace(tzinfo=None),
            }
            for key in organizations
            if bytes(key) not in taken
        ]
        for start in range(0, len(rows), PART):
            op.bulk_insert(SCOPE_TABLE, rows[start : start + PART])


def downgrade() -> None:
    names = [name.encode() for name, _, _ in SCOPES]
    op.get_bind().execute(
        sa.delete(SCOPE_TABLE).where(SCOPE_TABLE.c.name.in_(names), SCOPE_TABLE.c.is_identity),
        execution_options=ACROSS,
    )
    for table in ("app_role_assignments", "group_members", "user_groups"):
        op.drop_table(table)
    with op.batch_alter_table("users") as batch:
        batch.drop_column("attributes")


def _new_id() -> bytes:
    """A UUIDv7 (RFC 9562 section 5.7)."""
    number = int(time.time() * 1000) << 80 | secrets.randbits(80)
    return (number & ~(0xF << 76 | 0b11 << 62) | 0x7 << 76 | 0b10 << 62).to_bytes(16)
