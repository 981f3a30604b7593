"""Rows from outside, of an archive or of another cell: what of them is accepted.

Jobs work on the rows of all organizations, so a row that no operation would have written could end them for all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import BigInteger, Boolean, Integer, String, Table, func, select

from app.extensions import db
from app.models.audit import AuditChain, AuditLink
from app.models.base import Identifier, Json, UtcDateTime
from app.models.token import ACTIVE as ACTIVE_KEY
from app.operations.maintenance.archive import UnreadableArchive, record_to_row
from app.operations.store.transactions import read
from app.rules.sign_in.imported_hashes import scheme_of

_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime(2200, 1, 1, tzinfo=UTC)
# Callers choose these times: what they revoke is from before one of the past.
_MAY_BE_EARLIER = frozenset({"issued_before", "not_before", "tokens_not_before", "sessions_not_before"})
# Bodies of requests are nested up to 32 levels (JS-3).
_MAX_DEPTH = 64
_MAX_NUMBER = 2**63
# No log is so long, and the numbers of further events still fit their column.
_MAX_CHAIN_LENGTH = 2**53


@contextmanager
def reject_malformed() -> Iterator[None]:
    """Convert errors of malformed content, which may be anything."""
    try:
        yield
    except (ValueError, TypeError, AttributeError, KeyError, OverflowError, RecursionError) as error:
        raise UnreadableArchive("The content is malformed.") from error


def read_row(
    record: Sequence[Any], columns: Sequence[str], table: Table, organization_id: str
) -> dict[str, Any]:
    """Return the values of a row of the organization by column. Raises UnreadableArchive for what is not accepted."""
    row = read_values(record, columns, table)
    # A role names the organization of its user, too.
    if {row.get("organization_id"), row.get("user_organization_id", organization_id)} != {organization_id}:
        raise UnreadableArchive("There are rows of another organization.")
    if table.name == "users":
        _require_accepted_hash(row.get("password_hash"), row.get("password_scheme"))
    if table.name == "signing_keys" and row.get("slot") == ACTIVE_KEY and row.get("activated_at") is None:
        raise UnreadableArchive("signing_keys.activated_at is not set for an active key.")
    return row


def read_values(record: Sequence[Any], columns: Sequence[str], table: Table) -> dict[str, Any]:
    """Return the values of a record by column. Raises UnreadableArchive if one does not fit its column."""
    with reject_malformed():
        row = record_to_row(record, columns, table)
    for name, value in row.items():
        try:
            is_accepted = _is_accepted(value, table, name)
        except (ValueError, RecursionError):
            is_accepted = False
        if not is_accepted:
            raise UnreadableArchive(f"{table.name}.{name} has a value that is not accepted.")
    return row


def require_columns(table: Table, names: Iterable[str]) -> None:
    """Raise UnreadableArchive unless the columns without a default are among these."""
    required = {
        column.name
        for column in table.columns
        if not column.nullable and column.default is None and column.server_default is None
    }
    if missing := sorted(required - set(names)):
        raise UnreadableArchive(f"{table.name}.{missing[0]} is missing.")


@read
def require_sound_chain(organization_id: str) -> None:
    """Raise UnreadableArchive unless events can be added to the chain of the organization's audit log."""
    ends = db.session.execute(
        select(AuditChain.length, AuditChain.removed).where(AuditChain.organization_id == organization_id)
    ).first()
    last = db.session.scalar(
        select(func.max(AuditLink.position)).where(AuditLink.organization_id == organization_id)
    )
    length, removed = (0, 0) if ends is None else ends
    last = removed if last is None else last
    if not 0 <= removed <= length == last <= _MAX_CHAIN_LENGTH:
        raise UnreadableArchive("The chain of the audit log does not end where its links end.")


def _is_accepted(value: Any, table: Table, name: str) -> bool:
    column = table.c[name]
    kind = column.type
    if value is None:
        return bool(column.nullable)
    if isinstance(kind, UtcDateTime):
        return _is_sane_time(value, name)
    if isinstance(kind, Json):
        # What cannot be written again raises ValueError.
        return not _is_deep(value) and bool(json.dumps(value, ensure_ascii=False, allow_nan=False).encode())
    if isinstance(kind, Boolean):
        return isinstance(value, bool)
    if isinstance(kind, Integer | BigInteger):
        return isinstance(value, int) and not isinstance(value, bool) and -_MAX_NUMBER <= value < _MAX_NUMBER
    if isinstance(kind, String | Identifier):
        return isinstance(value, str) and value.encode() is not None
    return True


def _is_sane_time(value: datetime, name: str) -> bool:
    return value.tzinfo is not None and value < _LATEST and (value >= _EARLIEST or name in _MAY_BE_EARLIER)


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(_MAX_DEPTH):
        level = [
            child
            for item in level
            if isinstance(item, dict | list)
            for child in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return False
    return True


def _require_accepted_hash(stored: Any, scheme: Any) -> None:
    """Raise UnreadableArchive for a hash that no import of users accepts: it says itself what a sign-in costs."""
    found = scheme_of(stored) if isinstance(stored, str) else None
    if (stored is not None and found is None) or scheme not in (None, found):
        raise UnreadableArchive("A password hash is not accepted here.")
