"""Encrypted payloads of outbox messages, so that a copy of the database does not reveal them."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

from app.operations.store import keyring


def seal_payload(organization_id: str, kind: str, values: Mapping[str, Any]) -> dict[str, str]:
    """Return the values as an encrypted payload for a message of this kind."""
    sealed = keyring.seal(organization_id, json.dumps(values).encode(), f"outbox {kind}")
    return {"sealed": b64encode(sealed).decode()}


def open_payload(organization_id: str, kind: str, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values. Raises UnsealError if they were changed or belong to another organization or kind."""
    values: dict[str, Any] = json.loads(
        keyring.unseal(organization_id, b64decode(payload["sealed"]), f"outbox {kind}")
    )
    return values
