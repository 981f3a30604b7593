"""The hash chain of audit events (AU-3): each link's MAC covers the one before, its place and its event.

The key comes from the organization's data key, so that whoever writes to the database alone cannot make a link,
and one organization's events count in no other.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

GENESIS = bytes(32)
"""What stands before the first link."""

CHECKPOINT = r"audit checkpoint ([0-9a-z]{8}) ([1-9][0-9]*) ([0-9a-f]{64})"
"""A line of the log that says where a chain stood: organization key, position, MAC of the link there."""

# What was found wrong, in words for people.
PROBLEMS: Mapping[str, str] = {
    "changed": "The event is not the one that was sealed.",
    "missing": "The event that was sealed here is gone.",
    "link_missing": "A link of the chain is gone.",
    "truncated": "The chain ends before the place where it was left.",
    "head_changed": "The end of the chain was changed by somebody without the key.",
    "chain_missing": "The organization has no chain at all.",
    "inserted": "The event was added long after the time that it claims.",
}


def event_bytes(event: Mapping[str, Any]) -> bytes:
    """One event as the chain has it: every column, in one form alone."""
    return json.dumps(event, default=_plain, sort_keys=True, separators=(",", ":")).encode()


def link_mac(key: bytes, before: bytes, position: int, event: bytes) -> bytes:
    """The MAC of the link at the position, 1 for the first; ``before`` is that of the link before, or GENESIS."""
    return hmac.digest(key, before + position.to_bytes(8, "big") + event, "sha256")


def head_mac(key: bytes, *, length: int, head: bytes, removed: int, anchor: bytes) -> bytes:
    """What nobody without the key can make for another end or beginning of the chain."""
    ends = b"head" + length.to_bytes(8, "big") + head + removed.to_bytes(8, "big") + anchor
    return hmac.digest(key, ends, "sha256")


def checkpoint_line(organization_id: str, position: int, mac: bytes) -> str:
    """What CHECKPOINT reads. Kept outside of the database it finds even a chain that was put back whole."""
    return f"audit checkpoint {organization_id} {position} {mac.hex()}"


def _plain(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds")
    if isinstance(value, UUID):
        return value.hex
    raise TypeError(f"an event holds no {type(value).__name__}")
