"""Sealed payloads: what an outbox message says that nobody with a copy of the database may read."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

from app.operations.store import keyring


def seal_payload(organization_id: str, kind: str, values: Mapping[str, Any]) -> dict[str, str]:
    """The payload of a message of the kind, in which the values cannot be read."""
    sealed = keyring.seal(organization_id, json.dumps(values).encode(), f"outbox {kind}")
    return {"sealed": b64encode(sealed).decode()}


def open_payload(organization_id: str, kind: str, payload: Mapping[str, Any]) -> dict[str, Any]:
    """The values. Raises UnsealError when they were changed or are another organization's or kind's."""
    values: dict[str, Any] = json.loads(
        keyring.unseal(organization_id, b64decode(payload["sealed"]), f"outbox {kind}")
    )
    return values
