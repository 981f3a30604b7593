"""Codes without PKCE, which clients sign in with and without it, and the policy of existing organizations.

Until now every client had to use PKCE, and the new default lets confidential clients send a nonce instead. Existing
organizations keep the old rule as a setting of their own: an upgrade must not weaken what their administrators rely on,
and all of their clients use PKCE already. They take the new default when they reset the setting.

The release before ignores the setting, and rejects the few codes without a challenge that are issued beside it.

Revision: 0027
Follows: 0026
"""

import sqlalchemy as sa
from alembic import op

from migrations.column_types import UTC_DATETIME, identifier

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

COLUMNS = (
    ("pkce_used_at", "when it last redeemed a code with PKCE, sampled"),
    ("pkce_omitted_at", "when it last redeemed a code without PKCE, sampled"),
)
CHALLENGE = "S256 (RFC 7636)"
CHALLENGE_OR_NONE = "S256 (RFC 7636); NULL without PKCE"


def _change_settings(on_sqlite: str, elsewhere: str) -> None:
    # One statement for all organizations, which the database applies to each row as it is then.
    expression = on_sqlite if op.get_bind().dialect.name == "sqlite" else elsewhere
    op.execute(
        f"UPDATE organizations SET settings = {expression}, settings_version = settings_version + 1,"  # noqa: S608
        " version = version + 1"
    )


def upgrade() -> None:
    for name, comment in COLUMNS:
        op.add_column("clients", sa.Column(name, UTC_DATETIME, nullable=True, comment=comment))
    with op.batch_alter_table("authorization_codes") as batch:
        batch.alter_column(
            "code_challenge",
            existing_type=identifier(43),
            nullable=True,
            comment=CHALLENGE_OR_NONE,
            existing_comment=CHALLENGE,
        )
    policy = """'{"oauth": {"pkce": "required"}}'"""
    _change_settings(f"json_patch(settings, {policy})", f"JSON_MERGE_PATCH(settings, {policy})")


def downgrade() -> None:
    # Codes without a challenge are valid for a minute. The release before could not redeem them.
    op.execute(
        "DELETE FROM authorization_codes WHERE code_challenge IS NULL",
        execution_options={"across_organizations": True},
    )
    _change_settings("json_remove(settings, '$.oauth.pkce')", "JSON_REMOVE(settings, '$.oauth.pkce')")
    with op.batch_alter_table("authorization_codes") as batch:
        batch.alter_column(
            "code_challenge",
            existing_type=identifier(43),
            nullable=False,
            comment=CHALLENGE,
            existing_comment=CHALLENGE_OR_NONE,
        )
    with op.batch_alter_table("clients") as batch:
        for name, _ in COLUMNS:
            batch.drop_column(name)
