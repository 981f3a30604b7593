"""Which clients get an API's scopes without a user's consent.

Clients keep what they could use until now: the scopes of APIs that clients with client credentials or token exchange
were registered with, the APIs that are among their resources, and, for scopes that belong to no API, every API, for
which they could request them.

Revision: 0025
Follows: 0023
"""

import json
import secrets
import time
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from alembic import op

from migrations.column_types import JSON_TEXT, TABLE_OPTIONS, UTC_DATETIME, UUID, identifier

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

# "approval", as bytes: SQLite would store a text.
APPROVAL = sa.text("X'617070726f76616c'")
WITHOUT_CONSENT = {"client_credentials", "urn:ietf:params:oauth:grant-type:token-exchange"}
PART = 500
ACROSS = {"across_organizations": True}

CLIENTS = sa.table(
    "clients",
    sa.column("organization_id", identifier(8)),
    sa.column("id", UUID),
    sa.column("status", identifier(16)),
    sa.column("document", sa.Text()),
)
RESOURCES = sa.table(
    "resources",
    sa.column("organization_id", identifier(8)),
    sa.column("id", UUID),
    sa.column("identifier", identifier(255)),
)
SCOPES = sa.table(
    "scopes",
    sa.column("organization_id", identifier(8)),
    sa.column("resource_id", UUID),
    sa.column("name", identifier(128)),
    sa.column("is_identity", sa.Boolean()),
)
ACCESS = sa.table(
    "client_access",
    sa.column("organization_id", identifier(8)),
    sa.column("id", UUID),
    sa.column("client_id", UUID),
    sa.column("resource_id", UUID),
    sa.column("status", identifier(16)),
    sa.column("scopes", sa.Text()),
    sa.column("created_at", UTC_DATETIME),
    sa.column("created_by", sa.String()),
    sa.column("decided_at", UTC_DATETIME),
    sa.column("decided_by", sa.String()),
)


def upgrade() -> None:
    op.create_table(
        "client_access",
        sa.Column("client_id", UUID, nullable=False),
        sa.Column("resource_id", UUID, nullable=False),
        sa.Column("status", identifier(16), nullable=False, comment="requested, granted, declined, withdrawn"),
        sa.Column("scopes", JSON_TEXT, nullable=False, comment="names of the API's scopes, possibly none"),
        sa.Column("reason", sa.String(300), nullable=True, comment="why the developer requests it"),
        sa.Column("message", sa.String(300), nullable=True, comment="the decider's words for the developer"),
        sa.Column("created_at", UTC_DATETIME, nullable=False),
        sa.Column("created_by", sa.String(200), nullable=True),
        sa.Column("created_by_user_id", UUID, nullable=True, comment="may be a root user, hence no foreign key"),
        sa.Column("decided_at", UTC_DATETIME, nullable=True, comment="of a withdrawal: tokens issued before are revoked"),
        sa.Column("decided_by", sa.String(200), nullable=True),
        sa.Column("organization_id", identifier(8), nullable=False, comment="routing key of the organization"),
        sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application"),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_client_access"),
        sa.UniqueConstraint(
            "organization_id",
            "client_id",
            "resource_id",
            "status",
            name="uq_client_access_organization_id_client_id_resource_id_status",
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "client_id"],
            ["clients.organization_id", "clients.id"],
            name="fk_client_access_client_id",
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "resource_id"],
            ["resources.organization_id", "resources.id"],
            name="fk_client_access_resource_id",
        ),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_client_access_resource", "client_access", ["organization_id", "resource_id", "id"])
    op.create_index("ix_client_access_status", "client_access", ["organization_id", "status", "id"])
    op.add_column(
        "resources",
        sa.Column(
            "access_policy",
            identifier(16),
            nullable=False,
            server_default=APPROVAL,
            comment="open, approval, listed: which clients get tokens",
        ),
    )
    with_apis = sa.select(RESOURCES.c.organization_id).distinct()
    for organization_id in op.get_bind().scalars(with_apis, execution_options=ACROSS).all():
        _grant_access(organization_id)


def downgrade() -> None:
    op.drop_column("resources", "access_policy")
    op.drop_table("client_access")


def _grant_access(organization_id: bytes) -> None:
    connection = op.get_bind()
    identifiers = {
        bytes(row.id): bytes(row.identifier).decode()
        for row in connection.execute(
            sa.select(RESOURCES.c.id, RESOURCES.c.identifier).where(
                RESOURCES.c.organization_id == organization_id
            )
        )
    }
    owners = {
        bytes(row.name).decode(): None if row.resource_id is None else bytes(row.resource_id)
        for row in connection.execute(
            sa.select(SCOPES.c.name, SCOPES.c.resource_id).where(
                SCOPES.c.organization_id == organization_id, SCOPES.c.is_identity == sa.false()
            )
        )
    }
    last = b""
    while True:
        clients = connection.execute(
            sa.select(CLIENTS.c.id, CLIENTS.c.document)
            .where(
                CLIENTS.c.organization_id == organization_id,
                CLIENTS.c.id > last,
                CLIENTS.c.status != b"deleted",
            )
            .order_by(CLIENTS.c.id)
            .limit(PART)
        ).all()
        if not clients:
            return
        last = bytes(clients[-1].id)
        rows = [
            _row(organization_id, bytes(client.id), resource_id, scopes)
            for client in clients
            for resource_id, scopes in _access_of(json.loads(client.document), identifiers, owners).items()
        ]
        if rows:
            connection.execute(sa.insert(ACCESS), rows)


def _access_of(
    document: dict[str, Any], identifiers: dict[bytes, str], owners: dict[str, bytes | None]
) -> dict[bytes, list[str]]:
    """The scopes that the client could use until now without a user's consent, by API."""
    if not WITHOUT_CONSENT & set(document.get("grant_types") or ()):
        return {}
    scopes = [name for name in document.get("scopes") or () if name in owners]
    named = set(document.get("resources") or ())
    fits_any_api = any(owners[name] is None for name in scopes)
    found: dict[bytes, list[str]] = {
        resource_id: [] for resource_id, name in identifiers.items() if fits_any_api or name in named
    }
    for name in scopes:
        owner = owners[name]
        if owner is not None:
            found.setdefault(owner, []).append(name)
    return found


def _new_id() -> bytes:
    """A UUIDv7 (RFC 9562 section 5.7)."""
    number = int(time.time() * 1000) << 80 | secrets.randbits(80)
    return (number & ~(0xF << 76 | 0b11 << 62) | 0x7 << 76 | 0b10 << 62).to_bytes(16)


def _row(organization_id: bytes, client_id: bytes, resource_id: bytes, scopes: list[str]) -> dict[str, Any]:
    now = datetime.now(UTC).replace(tzinfo=None)
    return {
        "organization_id": organization_id,
        "id": _new_id(),
        "client_id": client_id,
        "resource_id": resource_id,
        "status": b"granted",
        "scopes": json.dumps(scopes, separators=(",", ":")),
        "created_at": now,
        "created_by": "upgrade",
        "decided_at": now,
        "decided_by": "upgrade",
    }
