"""Versions of what has no counter of its own: a number that is another once what is shown has changed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import sha256


def compute_version(*values: object) -> int:
    """A number from 1 to 10^9 that the values alone decide; for ETags, not for secrets."""
    text = json.dumps([str(value) for value in values])
    return int.from_bytes(sha256(text.encode()).digest()[:8], "big") % 10**9 + 1


def combine_versions(versions: Iterable[int]) -> int:
    """The version of several things together, in whatever order they come."""
    return compute_version(*sorted(versions))
