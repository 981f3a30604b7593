"""What of an organization goes into its file, table by table, and what stays behind and why.

A new table that stands in neither list fails a test: whoever makes one decides here.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, LargeBinary, Table, true

from app.models.base import Base, Digest, Json, Sealed, UtcDateTime, Uuid

TRAVELS = frozenset(
    {
        "users",
        "authenticator_apps",
        "recovery_codes",
        "passkey_handles",
        "passkeys",
        "role_assignments",
        "invitations",
        "resources",
        "scopes",
        "clients",
        "client_credentials",
        "client_registrations",
        "client_logos",
        "organization_logos",
        "registration_tokens",
        "signing_keys",
        "consents",
        "grants",
        "audit_events",
        "audit_links",
        "audit_chains",
        "revocation_receipts",
    }
)

# What is lost with each of them is had again by the next sign-in or refresh.
STAYS: Mapping[str, str] = {
    "sessions": "people sign in again where the organization lives from now on",
    "session_clients": "clients hear of the end of sign-ins, which stay",
    "access_tokens": "live for an hour; clients get new ones with the refresh tokens, which travel",
    "authorization_codes": "live for a minute",
    "authorization_requests": "live for minutes, in one browser",
    "pushed_requests": "live for a minute",
    "device_codes": "live for minutes",
    "used_identifiers": "live for minutes, as what they guard does",
    "known_browsers": "their cookies belong to the installation's own address",
    "registrations": "people ask for their accounts anew",
    "account_links": "live for minutes, and are asked for anew",
    "attempts": "count for minutes",
    "second_factor_tries": "count for a month, of those who guess at the installation's own pages",
    "pending_sign_ins": "wait for minutes, in one browser",
    "idempotency_keys": "count for a day, at the installation that was called",
    "credential_uses": "samples of use for the verdict of a secret, which begins anew",
    "client_requests": "members ask anew where the organization lives from now on",
    "failed_requests": "the log of the installation that refused them, for days",
    "outbox": "mail and calls are sent by the installation that owes them",
    "revocation_log": "read by the installation that revoked; what it says stands in the rows themselves",
    "webhooks": "their addresses belong to the installation that signs for them; they are set up anew",
    "webhook_deliveries": "stay with their webhooks",
    "user_imports": "a file is sent again where the organization lives from now on; whom it brought in travels",
    "user_import_parts": "go with the import",
    "user_import_refusals": "go with the import",
    "view_changes": "lives for a minute",
}


def travelling_tables() -> list[Table]:
    """The tables that go into the file, parents before children."""
    return [table for table in Base.metadata.sorted_tables if table.name in TRAVELS]


def of_organization(table: Table, organization_id: str) -> ColumnElement[bool]:
    """The rows of the table that belong to the organization and to nobody else."""
    own: ColumnElement[bool] = table.c.organization_id == organization_id
    # A role that somebody of root holds by name is root's matter, and its user is not in the file.
    same_home = (
        table.c.user_organization_id == organization_id if table.name == "role_assignments" else true()
    )
    return own & same_home


def as_record(row: Sequence[Any], table: Table) -> list[Any]:
    """A row in JSON's types, in the order of the columns."""
    return [
        value if isinstance(column.type, Json) else _written(value)
        for value, column in zip(row, table.columns, strict=True)
    ]


def as_row(record: Sequence[Any], columns: Sequence[str], table: Table) -> dict[str, Any]:
    """The values of a record by column, in Python's types."""
    return {
        name: None if value is None else _read(value, table.c[name].type)
        for name, value in zip(columns, record, strict=True)
    }


def _written(value: Any) -> Any:
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, UUID):
        return value.hex
    if isinstance(value, datetime):
        return value.isoformat()
    return value


def _read(value: Any, kind: Any) -> Any:
    if isinstance(kind, Json):
        return value
    if isinstance(kind, Uuid):
        return UUID(value)
    if isinstance(kind, UtcDateTime):
        return datetime.fromisoformat(value)
    if isinstance(kind, Digest | Sealed | LargeBinary):
        return b64decode(value)
    return value
