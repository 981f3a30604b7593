"""The stored document of a client: its metadata without the columns of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import NODEFAULT, structs

from app.rules.clients.client_metadata import FIELDS, ClientMetadata

_FIELDS = frozenset(FIELDS)
_COLUMNS = frozenset({"name", "type", "trust", "status"})
_DEFAULTS = {
    field.name: field.default for field in structs.fields(ClientMetadata) if field.default is not NODEFAULT
}


def to_document(client: ClientMetadata, stored: Mapping[str, Any] = {}) -> dict[str, Any]:
    """Return the fields to store in the document column: all except name, type, trust and status.

    Fields of the ``stored`` document that only the next release knows are kept: it may run beside this one.
    """
    values = {name: getattr(client, name) for name in FIELDS if name not in _COLUMNS}
    later = {name: value for name, value in stored.items() if name not in _FIELDS}
    return later | {
        name: list(value) if isinstance(value, tuple) else value for name, value in values.items()
    }


def from_document(document: Mapping[str, Any], **columns: str) -> ClientMetadata:
    """Return the metadata from the stored document and ``columns``: name, type, trust and status."""
    return ClientMetadata(**{**fields_of_document(document), **columns})


def fields_of_document(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a stored document. Those that an older release did not have are their defaults."""
    stored = {
        name: tuple(value) if type(value) is list else value
        for name, value in document.items()
        if name in _FIELDS
    }
    return _DEFAULTS | stored
