"""Clients, their secrets, and the scopes an organization knows.

Revision: 0002
Follows: 0001
"""

import sqlalchemy as sa
from alembic import op

from migrations.column_types import DIGEST, JSON_TEXT, SEALED, TABLE_OPTIONS, UTC_DATETIME, UUID, identifier

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "clients",
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("name_key", identifier(400), nullable=False, comment="case-folded name, for order and search"),
        sa.Column("type", identifier(16), nullable=False, comment="web, spa, native, machine, device"),
        sa.Column("status", identifier(16), nullable=False, comment="active, disabled, deleted"),
        sa.Column("trust", identifier(16), nullable=False, comment="first_party, verified, unverified"),
        sa.Column("source", identifier(24), nullable=False, comment="person, dynamic, metadata_document: who registered it"),
        sa.Column("metadata_document_uri", identifier(500), nullable=True, comment="its client_id on the wire, where that is the address of its metadata"),
        sa.Column("document", JSON_TEXT, nullable=False, comment="client metadata (RFC 7591 names), as rules/client_metadata completed it"),
        sa.Column("version", sa.Integer(), nullable=False, comment="raised by each change of the client or its credentials"),
        sa.Column("created_at", UTC_DATETIME, nullable=False),
        sa.Column("created_by", sa.String(200), nullable=True),
        sa.Column("created_by_user_id", UUID, nullable=True, comment="may be a root user, hence no foreign key"),
        sa.Column("updated_at", UTC_DATETIME, nullable=False),
        sa.Column("last_used_at", UTC_DATETIME, nullable=True, comment="sampled"),
        sa.Column("deleted_at", UTC_DATETIME, nullable=True),
        sa.Column("organization_id", identifier(8), nullable=False, comment="routing key of the organization"),
        sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application"),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_clients"),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], name="fk_clients_organization"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_clients_deleted_at", "clients", ["deleted_at"])
    op.create_index("ix_clients_name", "clients", ["organization_id", "name_key", "id"])
    op.create_table(
        "scopes",
        sa.Column("name", identifier(128), nullable=False),
        sa.Column("title", sa.String(200), nullable=True, comment="verb and object in the user's words; NULL wants words"),
        sa.Column("description", sa.String(1000), nullable=True),
        sa.Column("is_identity", sa.Boolean(), nullable=False, comment="OpenID Connect's own"),
        sa.Column("version", sa.Integer(), nullable=False, comment="raised by each change of its words"),
        sa.Column("created_at", UTC_DATETIME, nullable=False),
        sa.Column("created_by", sa.String(200), nullable=True),
        sa.Column("organization_id", identifier(8), nullable=False, comment="routing key of the organization"),
        sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application"),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_scopes"),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], name="fk_scopes_organization"),
        sa.UniqueConstraint("organization_id", "name", name="uq_scopes_organization_id_name"),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "client_credentials",
        sa.Column("client_id", UUID, nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("digest", DIGEST, nullable=False),
        sa.Column("hint", identifier(8), nullable=False, comment="last four characters"),
        sa.Column("sealed", SEALED, nullable=True, comment="NULL where the organization shows secrets once"),
        sa.Column("created_at", UTC_DATETIME, nullable=False),
        sa.Column("created_by", sa.String(200), nullable=True),
        sa.Column("expires_at", UTC_DATETIME, nullable=True),
        sa.Column("retiring_since", UTC_DATETIME, nullable=True, comment="set by a rotation that may be cancelled"),
        sa.Column("previous_expires_at", UTC_DATETIME, nullable=True, comment="the end that cancelling restores"),
        sa.Column("takes_tokens", sa.Boolean(), nullable=False, comment="when its end comes, what it minted ends with it"),
        sa.Column("notified_at", UTC_DATETIME, nullable=True, comment="when its people were told that it ends while in use"),
        sa.Column("revoked_at", UTC_DATETIME, nullable=True),
        sa.Column("revoked_by", sa.String(200), nullable=True),
        sa.Column("tokens_revoked_at", UTC_DATETIME, nullable=True, comment="set: no token that it minted is alive"),
        sa.Column("first_used_at", UTC_DATETIME, nullable=True),
        sa.Column("last_used_at", UTC_DATETIME, nullable=True, comment="sampled"),
        sa.Column("last_used_address", identifier(64), nullable=True),
        sa.Column("organization_id", identifier(8), nullable=False, comment="routing key of the organization"),
        sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application"),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_client_credentials"),
        sa.ForeignKeyConstraint(["organization_id", "client_id"], ["clients.organization_id", "clients.id"], name="fk_client_credentials_client_id"),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], name="fk_client_credentials_organization"),
        sa.UniqueConstraint("organization_id", "client_id", "id", name="uq_client_credentials_organization_id_client_id_id"),
        sa.UniqueConstraint("organization_id", "digest", name="uq_client_credentials_organization_id_digest"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_client_credentials_expires_at", "client_credentials", ["expires_at"])
    op.create_table(
        "credential_uses",
        sa.Column("credential_id", UUID, nullable=False),
        sa.Column("address", identifier(64), nullable=False),
        sa.Column("last_used_at", UTC_DATETIME, nullable=False),
        sa.Column("expires_at", UTC_DATETIME, nullable=False),
        sa.Column("organization_id", identifier(8), nullable=False, comment="routing key of the organization"),
        sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application"),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_credential_uses"),
        sa.ForeignKeyConstraint(["organization_id", "credential_id"], ["client_credentials.organization_id", "client_credentials.id"], name="fk_credential_uses_credential_id"),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], name="fk_credential_uses_organization"),
        sa.UniqueConstraint("organization_id", "credential_id", "address", name="uq_credential_uses_organization_id_credential_id_address"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_credential_uses_expires_at", "credential_uses", ["expires_at"])
    op.create_table(
        "signing_keys",
        sa.Column("kid", identifier(64), nullable=False, comment="RFC 7638 thumbprint"),
        sa.Column("algorithm", identifier(16), nullable=False, comment="RS256, PS256, ES256, EdDSA"),
        sa.Column("state", identifier(16), nullable=False, comment="next, active, retired"),
        sa.Column("slot", identifier(16), nullable=True, comment="the state while only one may hold it; NULL once retired"),
        sa.Column("public_jwk", JSON_TEXT, nullable=False),
        sa.Column("sealed_private_key", SEALED, nullable=False, comment="PKCS 8 under the organization's data key"),
        sa.Column("created_at", UTC_DATETIME, nullable=False),
        sa.Column("activated_at", UTC_DATETIME, nullable=True),
        sa.Column("retired_at", UTC_DATETIME, nullable=True),
        sa.Column("remove_at", UTC_DATETIME, nullable=True, comment="when nothing it signed can still be valid"),
        sa.Column("organization_id", identifier(8), nullable=False, comment="routing key of the organization"),
        sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application"),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_signing_keys"),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], name="fk_signing_keys_organization"),
        sa.UniqueConstraint("organization_id", "algorithm", "slot", name="uq_signing_keys_organization_id_algorithm_slot"),
        sa.UniqueConstraint("organization_id", "kid", name="uq_signing_keys_organization_id_kid"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_signing_keys_remove_at", "signing_keys", ["remove_at"])


def downgrade() -> None:
    op.drop_table("signing_keys")
    op.drop_table("credential_uses")
    op.drop_table("client_credentials")
    op.drop_table("scopes")
    op.drop_table("clients")
