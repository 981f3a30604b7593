"""Imports of people, with where each one stands.

Revision: 0017
Follows: 0016
"""

import sqlalchemy as sa
from alembic import op

from migrations.column_types import DIGEST, JSON_TEXT, SEALED, TABLE_OPTIONS, UTC_DATETIME, UUID, identifier

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "user_imports",
        sa.Column("name", sa.String(200), nullable=False, comment="of the file"),
        sa.Column("format", identifier(8), nullable=False, comment="csv, json, ndjson"),
        sa.Column("digest", DIGEST, nullable=False, comment="of the whole file"),
        sa.Column("on_existing", identifier(8), nullable=False, comment="skip, update"),
        sa.Column(
            "status",
            identifier(16),
            nullable=False,
            comment="uploading, checking, checked, running, done, cancelled, failed",
        ),
        sa.Column(
            "is_foreground",
            sa.Boolean(),
            nullable=False,
            comment="the command line works on it, no server does",
        ),
        sa.Column("importer", JSON_TEXT, nullable=False, comment="who asked for it, and what they might do"),
        sa.Column("total", sa.Integer(), nullable=False, comment="rows of the file"),
        sa.Column("parts", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False, comment="parts that are done"),
        sa.Column("created", sa.Integer(), nullable=False),
        sa.Column("updated", sa.Integer(), nullable=False),
        sa.Column("skipped", sa.Integer(), nullable=False),
        sa.Column("refused", sa.Integer(), nullable=False),
        sa.Column("failure", sa.String(300), nullable=True),
        sa.Column("created_at", UTC_DATETIME, nullable=False),
        sa.Column("worked_at", UTC_DATETIME, nullable=False),
        sa.Column("ended_at", UTC_DATETIME, nullable=True),
        sa.Column("expires_at", UTC_DATETIME, nullable=False),
        sa.Column(
            "organization_id", identifier(8), nullable=False, comment="routing key of the organization"
        ),
        sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application"),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_user_imports"),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name="fk_user_imports_organization"
        ),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_user_imports_due", "user_imports", ["status", "worked_at"])
    op.create_index("ix_user_imports_expires_at", "user_imports", ["expires_at"])
    op.create_table(
        "user_import_parts",
        sa.Column("organization_id", identifier(8), nullable=False),
        sa.Column("import_id", UUID, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("sealed_rows", SEALED, nullable=False),
        sa.Column("expires_at", UTC_DATETIME, nullable=False),
        *_keys("user_import_parts"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_user_import_parts_expires_at", "user_import_parts", ["expires_at"])
    op.create_table(
        "user_import_refusals",
        sa.Column("organization_id", identifier(8), nullable=False),
        sa.Column("import_id", UUID, nullable=False),
        sa.Column(
            "number", sa.Integer(), nullable=False, autoincrement=False, comment="of the row in the file"
        ),
        sa.Column("sealed_row", SEALED, nullable=False, comment="the row and its errors"),
        sa.Column("expires_at", UTC_DATETIME, nullable=False),
        *_keys("user_import_refusals"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_user_import_refusals_expires_at", "user_import_refusals", ["expires_at"])


def _keys(table: str) -> list[sa.Constraint]:
    return [
        sa.PrimaryKeyConstraint("organization_id", "import_id", "number", name=f"pk_{table}"),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], name=f"fk_{table}_organization"),
        sa.ForeignKeyConstraint(
            ["organization_id", "import_id"],
            ["user_imports.organization_id", "user_imports.id"],
            name=f"fk_{table}_import_id",
        ),
    ]


def downgrade() -> None:
    op.drop_table("user_import_refusals")
    op.drop_table("user_import_parts")
    op.drop_table("user_imports")
