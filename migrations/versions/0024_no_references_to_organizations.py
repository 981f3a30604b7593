"""No foreign key refers to an organization: each insert locked its row, which other transactions update.

Revision: 0024
Follows: 0023
"""

import re

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

TABLES = """
    account_links attempts audit_chains audit_events audit_links authenticator_apps
    authorization_codes authorization_requests client_credentials client_logos client_registrations
    client_requests clients consents credential_uses device_codes failed_requests grants
    idempotency_keys invitations known_browsers organization_logos outbox passkey_handles passkeys
    pending_sign_ins pushed_requests recovery_codes registration_tokens registrations resources
    revocation_log revocation_receipts role_assignments scopes second_factor_tries session_clients
    sessions signing_keys used_identifiers user_import_parts user_import_refusals user_imports users
    view_changes webhook_deliveries webhooks
""".split()


def _name(table: str) -> str:
    return f"fk_{table}_organization"


def _clause(table: str) -> str:
    return f"CONSTRAINT {_name(table)} FOREIGN KEY(organization_id) REFERENCES organizations (id)"


def _redefine_on_sqlite(change) -> None:
    """Change the text of the tables' definitions and nothing else, as SQLite's ALTER TABLE documents it for constraints.

    Copying every table would take as long as the database is large.
    """
    bind = op.get_bind()
    version = bind.exec_driver_sql("PRAGMA schema_version").scalar_one()
    bind.exec_driver_sql("PRAGMA writable_schema = ON")
    for table in TABLES:
        mine = {"name": table}
        text = bind.scalar(sa.text("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = :name"), mine)
        bind.execute(
            sa.text("UPDATE sqlite_master SET sql = :sql WHERE type = 'table' AND name = :name"),
            {"sql": change(table, text), **mine},
        )
    bind.exec_driver_sql(f"PRAGMA schema_version = {version + 1}")
    # Reads the definitions again, and fails if one of them is not SQL.
    bind.exec_driver_sql("PRAGMA writable_schema = RESET")


def _without(table: str, text: str) -> str:
    changed, count = re.subn(
        rf",\s*CONSTRAINT \"?{_name(table)}\"? FOREIGN KEY\s*\(organization_id\) REFERENCES organizations \(id\)", "", text
    )
    if count != 1:
        raise RuntimeError(f"{table} has no foreign key {_name(table)}")
    return changed


def _with(table: str, text: str) -> str:
    end = text.rindex(")")
    return f"{text[:end].rstrip()}, \n\t{_clause(table)}\n{text[end:]}"


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        _redefine_on_sqlite(_without)
        return
    for table in TABLES:
        op.drop_constraint(_name(table), table, type_="foreignkey")


def downgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        _redefine_on_sqlite(_with)
        return
    for table in TABLES:
        op.create_foreign_key(_name(table), table, "organizations", ["organization_id"], ["id"])
