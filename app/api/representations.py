"""Representations: what a record is in JSON. Times are RFC 3339 in UTC; a client has the words of RFC 7591."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from app.operations.clients.clients import ClientRecord
from app.operations.clients.credentials import CredentialRecord
from app.operations.directory.lookups import OrganizationSnapshot
from app.rules.clients.client_metadata import FIELDS


def time(value: datetime | None) -> str | None:
    """``2026-11-21T05:04:03.123456Z``, or null."""
    return None if value is None else value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def client(record: ClientRecord, organization: OrganizationSnapshot) -> dict[str, Any]:
    """A client, without secrets."""
    values = {name: getattr(record, name) for name in FIELDS}
    return {
        "client_id": record.client_id,
        "organization_id": organization.slug,
        **{name: list(value) if isinstance(value, tuple) else value for name, value in values.items()},
        "metadata": dict(record.metadata or {}),
        "source": record.source,
        "metadata_document_uri": record.metadata_document_uri,
        "created_at": time(record.created_at),
        "created_by": record.created_by,
        "updated_at": time(record.updated_at),
        "last_used_at": time(record.last_used_at),
    }


def credential(record: CredentialRecord, client_id: str, *, secret: str | None = None) -> dict[str, Any]:
    """An entry of the ledger; with ``secret`` the secret itself stands beside it."""
    shown = {
        "id": record.public_id,
        "client_id": client_id,
        "name": record.name,
        "hint": record.hint,
        "status": record.status,
        "created_at": time(record.created_at),
        "created_by": record.created_by,
        "expires_at": time(record.expires_at),
        "revoked_at": time(record.revoked_at),
        "first_used_at": time(record.first_used_at),
        "last_used_at": time(record.last_used_at),
        "last_used_address": record.last_used_address,
        "addresses": [
            {"address": use.address, "last_used_at": time(use.last_used_at)} for use in record.addresses
        ],
        "live_tokens": record.live_tokens,
        "verdict": record.verdict,
        "revealable": record.revealable,
        "revokes_tokens_at_end": record.takes_tokens,
    }
    return shown if secret is None else {**shown, "client_secret": secret}
