"""Consents, requests, codes, grants and tokens.

Revision: 0003
Follows: 0002
"""

import sqlalchemy as sa
from alembic import op

from migrations.column_types import DIGEST, JSON_TEXT, SEALED, TABLE_OPTIONS, UTC_DATETIME, UUID, identifier

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "consents",
        sa.Column("user_id", UUID, nullable=False),
        sa.Column("client_id", UUID, nullable=False),
        sa.Column("scope", sa.String(4000), nullable=False, comment="all that was allowed, space-separated"),
        sa.Column("created_at", UTC_DATETIME, nullable=False),
        sa.Column("updated_at", UTC_DATETIME, nullable=False),
        sa.Column("expires_at", UTC_DATETIME, nullable=True),
        sa.Column("last_used_at", UTC_DATETIME, nullable=True, comment="sampled"),
        sa.Column("organization_id", identifier(8), nullable=False, comment="routing key of the organization"),
        sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application"),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_consents"),
        sa.ForeignKeyConstraint(["organization_id", "client_id"], ["clients.organization_id", "clients.id"], name="fk_consents_client_id"),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], name="fk_consents_organization"),
        sa.ForeignKeyConstraint(["organization_id", "user_id"], ["users.organization_id", "users.id"], name="fk_consents_user_id"),
        sa.UniqueConstraint("organization_id", "user_id", "client_id", name="uq_consents_organization_id_user_id_client_id"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_consents_client", "consents", ["organization_id", "client_id"])
    op.create_table(
        "authorization_requests",
        sa.Column("digest", DIGEST, nullable=False),
        sa.Column("browser_digest", DIGEST, nullable=False, comment="the browser that began it"),
        sa.Column("client_id", UUID, nullable=False),
        sa.Column("network", identifier(64), nullable=False, comment="where it came from, as far as limits count"),
        sa.Column("parameters", JSON_TEXT, nullable=False),
        sa.Column("created_at", UTC_DATETIME, nullable=False),
        sa.Column("expires_at", UTC_DATETIME, nullable=False),
        sa.Column("shown_digest", DIGEST, nullable=True, comment="what consent displayed: user, client, scopes"),
        sa.Column("selected_session_id", UUID, nullable=True, comment="the sign-in chosen for prompt=select_account"),
        sa.Column("pushed_request_id", UUID, nullable=True, comment="where it was pushed: spent with this one; its row may be gone, hence no foreign key"),
        sa.Column("completed_at", UTC_DATETIME, nullable=True),
        sa.Column("organization_id", identifier(8), nullable=False, comment="routing key of the organization"),
        sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application"),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_authorization_requests"),
        sa.ForeignKeyConstraint(["organization_id", "client_id"], ["clients.organization_id", "clients.id"], name="fk_authorization_requests_client_id"),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], name="fk_authorization_requests_organization"),
        sa.UniqueConstraint("organization_id", "digest", name="uq_authorization_requests_organization_id_digest"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_authorization_requests_client", "authorization_requests", ["organization_id", "client_id", "network", "completed_at", "expires_at"])
    op.create_index("ix_authorization_requests_browser", "authorization_requests", ["organization_id", "browser_digest"])
    op.create_index("ix_authorization_requests_expires_at", "authorization_requests", ["expires_at"])
    op.create_table(
        "authorization_codes",
        sa.Column("digest", DIGEST, nullable=False),
        sa.Column("client_id", UUID, nullable=False),
        sa.Column("user_id", UUID, nullable=False),
        sa.Column("session_id", UUID, nullable=True, comment="outlives the session row, hence no foreign key"),
        sa.Column("grant_id", UUID, nullable=False, comment="chosen now, written when redeemed; a replay revokes it"),
        sa.Column("redirect_uri", sa.String(2048), nullable=False),
        sa.Column("scope", sa.String(4000), nullable=False),
        sa.Column("nonce", sa.String(2048), nullable=True),
        sa.Column("code_challenge", identifier(43), nullable=False, comment="S256 (RFC 7636)"),
        sa.Column("auth_time", UTC_DATETIME, nullable=False),
        sa.Column("amr", identifier(64), nullable=False),
        sa.Column("acr", identifier(128), nullable=True, comment="what the sign-in reached"),
        sa.Column("resource", sa.String(3200), nullable=False, comment="resource indicators allowed, space-separated (RFC 8707)"),
        sa.Column("claims", JSON_TEXT, nullable=True, comment="the claims parameter, as understood (OIDC Core 5.5)"),
        sa.Column("dpop_jkt", identifier(43), nullable=True, comment="the key that must redeem it (RFC 9449 section 10)"),
        sa.Column("issued_at", UTC_DATETIME, nullable=False),
        sa.Column("expires_at", UTC_DATETIME, nullable=False),
        sa.Column("used_at", UTC_DATETIME, nullable=True),
        sa.Column("attempt", UUID, nullable=True, comment="which attempt claimed it: tells a lost answer from theft"),
        sa.Column("purge_at", UTC_DATETIME, nullable=False),
        sa.Column("organization_id", identifier(8), nullable=False, comment="routing key of the organization"),
        sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application"),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_authorization_codes"),
        sa.ForeignKeyConstraint(["organization_id", "client_id"], ["clients.organization_id", "clients.id"], name="fk_authorization_codes_client_id"),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], name="fk_authorization_codes_organization"),
        sa.ForeignKeyConstraint(["organization_id", "user_id"], ["users.organization_id", "users.id"], name="fk_authorization_codes_user_id"),
        sa.UniqueConstraint("organization_id", "digest", name="uq_authorization_codes_organization_id_digest"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_authorization_codes_client", "authorization_codes", ["organization_id", "client_id"])
    op.create_index("ix_authorization_codes_purge_at", "authorization_codes", ["purge_at"])
    op.create_index("ix_authorization_codes_user", "authorization_codes", ["organization_id", "user_id"])
    op.create_table(
        "grants",
        sa.Column("client_id", UUID, nullable=False),
        sa.Column("user_id", UUID, nullable=False),
        sa.Column("session_id", UUID, nullable=True, comment="outlives the session row, hence no foreign key"),
        sa.Column("scope", sa.String(4000), nullable=False),
        sa.Column("auth_time", UTC_DATETIME, nullable=False),
        sa.Column("amr", identifier(64), nullable=False),
        sa.Column("acr", identifier(128), nullable=True),
        sa.Column("resource", sa.String(3200), nullable=False, comment="resource indicators allowed, space-separated (RFC 8707)"),
        sa.Column("claims", JSON_TEXT, nullable=True, comment="the claims parameter, as understood (OIDC Core 5.5)"),
        sa.Column("dpop_jkt", identifier(43), nullable=True, comment="the key that its refresh tokens are bound to (RFC 9449 section 5)"),
        sa.Column("credential_id", UUID, nullable=True, comment="the secret that it was redeemed with; no foreign key: it only says what ends with it"),
        sa.Column("created_at", UTC_DATETIME, nullable=False),
        sa.Column("allowed_at", UTC_DATETIME, nullable=False, comment="when the code was issued or the device allowed: what revocations by time go by"),
        sa.Column("expires_at", UTC_DATETIME, nullable=False, comment="absolute end; rotation never extends it"),
        sa.Column("idle_expires_at", UTC_DATETIME, nullable=True, comment="end of the current refresh token"),
        sa.Column("generation", sa.Integer(), nullable=False, comment="how often it was rotated"),
        sa.Column("refresh_digest", DIGEST, nullable=True, comment="the current refresh token; NULL without one"),
        sa.Column("previous_digest", DIGEST, nullable=True, comment="the refresh token before"),
        sa.Column("rotated_at", UTC_DATETIME, nullable=True),
        sa.Column("sealed_answer", SEALED, nullable=True, comment="the last answer, sealed under the token presented (RF-3)"),
        sa.Column("revoked_at", UTC_DATETIME, nullable=True),
        sa.Column("revoked_reason", identifier(64), nullable=True),
        sa.Column("organization_id", identifier(8), nullable=False, comment="routing key of the organization"),
        sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application"),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_grants"),
        sa.ForeignKeyConstraint(["organization_id", "client_id"], ["clients.organization_id", "clients.id"], name="fk_grants_client_id"),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], name="fk_grants_organization"),
        sa.ForeignKeyConstraint(["organization_id", "user_id"], ["users.organization_id", "users.id"], name="fk_grants_user_id"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_grants_client", "grants", ["organization_id", "client_id"])
    op.create_index("ix_grants_expires_at", "grants", ["expires_at"])
    op.create_index("ix_grants_user", "grants", ["organization_id", "user_id", "client_id"])
    op.create_index("ix_grants_session", "grants", ["organization_id", "session_id"])
    op.create_table(
        "access_tokens",
        sa.Column("digest", DIGEST, nullable=False),
        sa.Column("client_id", UUID, nullable=False),
        sa.Column("grant_id", UUID, nullable=True, comment="NULL for client_credentials: no user is behind it"),
        sa.Column("credential_id", UUID, nullable=True, comment="the secret that minted it"),
        sa.Column("scope", sa.String(4000), nullable=False),
        sa.Column("audience", sa.String(3200), nullable=False, comment="resource indicators, space-separated (RFC 8707)"),
        sa.Column("dpop_jkt", identifier(43), nullable=True, comment="thumbprint of the key it is bound to (RFC 9449 section 6)"),
        sa.Column("act", JSON_TEXT, nullable=True, comment="who acts for the subject (RFC 8693 section 4.1)"),
        sa.Column("parent_id", UUID, nullable=True, comment="the token it was exchanged for (RFC 8693): it dies with that one"),
        sa.Column("issued_at", UTC_DATETIME, nullable=False),
        sa.Column("expires_at", UTC_DATETIME, nullable=False),
        sa.Column("revoked_at", UTC_DATETIME, nullable=True),
        sa.Column("organization_id", identifier(8), nullable=False, comment="routing key of the organization"),
        sa.Column("id", UUID, nullable=False, comment="UUIDv7 made by the application"),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_access_tokens"),
        sa.ForeignKeyConstraint(["organization_id", "client_id"], ["clients.organization_id", "clients.id"], name="fk_access_tokens_client_id"),
        sa.ForeignKeyConstraint(["organization_id", "client_id", "credential_id"], ["client_credentials.organization_id", "client_credentials.client_id", "client_credentials.id"], name="fk_access_tokens_credential_id"),
        sa.ForeignKeyConstraint(["organization_id", "grant_id"], ["grants.organization_id", "grants.id"], name="fk_access_tokens_grant_id"),
        sa.UniqueConstraint("organization_id", "digest", name="uq_access_tokens_organization_id_digest"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_access_tokens_client", "access_tokens", ["organization_id", "client_id", "credential_id", "expires_at"])
    op.create_index("ix_access_tokens_expires_at", "access_tokens", ["expires_at"])
    op.create_index("ix_access_tokens_grant", "access_tokens", ["organization_id", "grant_id"])


def downgrade() -> None:
    op.drop_table("access_tokens")
    op.drop_table("grants")
    op.drop_table("authorization_codes")
    op.drop_table("authorization_requests")
    op.drop_table("consents")
