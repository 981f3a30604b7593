"""The hash chain of audit events (AU-3): the MAC of each link covers the previous link, its position and its event.

The key is derived from the organization's data key. Write access to the database alone is therefore not enough to
create a link, and events of one organization cannot be moved to another.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

GENESIS = bytes(32)
"""The MAC before the first link."""

CHECKPOINT_PATTERN = r"audit checkpoint ([0-9a-z]{8}) ([1-9][0-9]*) ([0-9a-f]{64})"
"""A log line with the state of a chain: organization key, position, and MAC of the link at that position."""

# Descriptions of the problems for users.
PROBLEMS: Mapping[str, str] = {
    "changed": "The event was changed after it was sealed.",
    "missing": "The sealed event is missing.",
    "link_missing": "A link of the chain is missing.",
    "truncated": "The end of the chain is missing.",
    "head_changed": "The end of the chain was changed without the key.",
    "chain_missing": "The organization has no chain.",
    "inserted": "The event was added long after its stated time.",
}


def serialize_event(event: Mapping[str, Any]) -> bytes:
    """Serialize an event with every column in one canonical form."""
    return json.dumps(event, default=_plain, sort_keys=True, separators=(",", ":")).encode()


def link_mac(key: bytes, before: bytes, position: int, event: bytes) -> bytes:
    """Return the MAC of the link at the position, beginning with 1. ``before`` is the MAC of the previous link or
    GENESIS.
    """
    return hmac.digest(key, before + position.to_bytes(8, "big") + event, "sha256")


def head_mac(key: bytes, *, length: int, head: bytes, removed: int, anchor: bytes) -> bytes:
    """Return the MAC over both ends of the chain, so that only a holder of the key can move them."""
    ends = b"head" + length.to_bytes(8, "big") + head + removed.to_bytes(8, "big") + anchor
    return hmac.digest(key, ends, "sha256")


def format_checkpoint(organization_id: str, position: int, mac: bytes) -> str:
    """Return a line that matches CHECKPOINT_PATTERN. Stored outside the database, it reveals even a fully restored
    chain.
    """
    return f"audit checkpoint {organization_id} {position} {mac.hex()}"


def _plain(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds")
    if isinstance(value, UUID):
        return value.hex
    raise TypeError(f"an event cannot contain {type(value).__name__}")
