"""Tables keep organizations apart and can be swept: TN-4, TK-4."""

from __future__ import annotations

from sqlalchemy import Boolean, Index, Integer, Table, UniqueConstraint

from app.models import Base
from app.models.base import Digest, Identifier, Json, Sealed, UtcDateTime, Uuid
from app.operations.maintenance.purge_rules import DELETED_CLIENTS, PURGE_RULES, organization_tables
from tests.support.cases import each

# Tables of the instance itself, and the organizations.
OF_NO_ORGANIZATION = {"organizations", "leases", "instance_facts", "settings_ceilings"}
# Expiry columns without a sweep of their own, with the reason.
ENDS_SWEPT_OTHERWISE = {
    "client_credentials.expires_at": "kept as the ledger of a client, goes with it",
    "consents.expires_at": "asked again at the next authorization, goes with its client or user",
    "authorization_codes.expires_at": "kept a day for replays: purge_at",
    "leases.expires_at": "one row a job, taken again for ever",
    "organizations.purge_at": "the janitor's own list of organizations whose thirty days are over",
}
TABLES = Base.metadata.sorted_tables
TENANT_TABLES = [table for table in TABLES if table.name not in OF_NO_ORGANIZATION]


def names(table: Table) -> str:
    return table.name


@each("table", TENANT_TABLES)
def test_primary_keys_begin_with_the_organization(table: Table) -> None:
    assert next(column.name for column in table.primary_key) == "organization_id"


@each("table", TENANT_TABLES)
def test_unique_keys_contain_the_organization(table: Table) -> None:
    keys = [item for item in table.constraints if isinstance(item, UniqueConstraint)]
    keys += [index for index in table.indexes if index.unique]
    assert all(key.columns[0].name == "organization_id" for key in keys)


@each("table", TENANT_TABLES)
def test_foreign_keys_stay_within_the_organization(table: Table) -> None:
    for key in table.foreign_key_constraints:
        columns = [column.name for column in key.columns]
        if table.name == "role_assignments":
            # Root's administrators hold roles elsewhere; the user's own organization is part of the reference.
            assert columns == ["user_organization_id", "user_id"]
        else:
            assert columns[0] == "organization_id"
            assert next(element.column.name for element in key.elements) == "organization_id"


@each("table", TABLES)
def test_foreign_keys_do_not_refer_to_organizations(table: Table) -> None:
    """Each insert would lock the organization's row, and deadlock with a transaction that then updates it."""
    assert "organizations" not in {key.referred_table.name for key in table.foreign_key_constraints}


@each("table", TABLES)
def test_foreign_keys_do_not_cascade(table: Table) -> None:
    assert not [key.name for key in table.foreign_key_constraints if key.ondelete or key.onupdate]


@each("table", TABLES)
def test_primary_keys_are_generated_by_the_application(table: Table) -> None:
    assert table.autoincrement_column is None


@each("table", TABLES)
def test_keys_have_binary_collations(table: Table) -> None:
    """Case-insensitive collations ignore case, accents and trailing spaces, and would find another row (TK-3)."""
    indexed = {column for index in table.indexes for column in index.columns}
    for item in table.constraints:
        if isinstance(item, UniqueConstraint):
            indexed |= set(item.columns)
    indexed |= set(table.primary_key.columns)
    for column in indexed:
        assert isinstance(column.type, Identifier | Digest | Uuid | UtcDateTime | Boolean | Integer), column


@each("table", TABLES)
def test_times_and_digests_have_their_types(table: Table) -> None:
    for column in table.columns:
        if column.name.endswith("_at") or column.name == "at":
            assert isinstance(column.type, UtcDateTime), column
        if "digest" in column.name:
            assert isinstance(column.type, Digest), column
        if column.name.startswith("sealed"):
            assert isinstance(column.type, Sealed), column


@each("table", TABLES)
def test_expiry_columns_are_indexed_and_swept(table: Table) -> None:
    swept = {str(sweep.ends) for sweep in (*PURGE_RULES, DELETED_CLIENTS)}
    led = {index.columns[0].name for index in table.indexes if isinstance(index, Index)}
    for column in table.columns:
        where = f"{table.name}.{column.name}"
        if where in swept:
            assert column.name in led, f"{where} has no index that begins with it"
        elif column.name in {"expires_at", "purge_at", "remove_at"}:
            assert where in ENDS_SWEPT_OTHERWISE, f"{where}: no janitor knows it"


def test_growing_tables_have_a_sweep() -> None:
    lasting = {
        *OF_NO_ORGANIZATION,
        *("users", "role_assignments", "resources", "scopes", "clients", "client_credentials", "consents"),
        *(
            "user_groups",
            "group_members",
            "app_role_assignments",
        ),  # as long as their users, groups and clients
        "client_access",  # at most one row of each status for a client and an API
        *("client_registrations", "client_logos"),  # as long as their clients
        "organization_logos",  # as long as the setting that names it
        *("authenticator_apps", "recovery_codes", "passkeys", "passkey_handles"),  # as long as their users
        *("identity_providers", "linked_identities"),  # until they are deleted, and as long as their users
        "provisioning_tokens",  # at most two of a provider
        *("audit_events", "audit_links", "audit_chains"),  # by each organization's own retention
        "view_changes",  # until they are pruned
    }
    swept = {sweep.table.name for sweep in PURGE_RULES}
    assert {table.name for table in TABLES} == swept | lasting


def test_purge_covers_every_table() -> None:
    purged = {table.name for table in organization_tables()}
    # Its rows tell which organization has changed, no more, and may only be deleted by pruning.
    assert purged | {"view_changes"} == {table.name for table in TENANT_TABLES}


@each("table", TABLES)
def test_json_documents_are_opaque_text(table: Table) -> None:
    assert not [column for column in table.columns if column.type.__class__.__name__ == "JSON"]
    assert not [index for index in table.indexes if any(isinstance(c.type, Json) for c in index.columns)]
