"""Versions of objects without a counter: a number that changes when the displayed values change."""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import sha256


def compute_version(*values: object) -> int:
    """Return a number from 1 to 10^9 that depends only on the values. Use it for ETags, not for secrets."""
    text = json.dumps([str(value) for value in values])
    return int.from_bytes(sha256(text.encode()).digest()[:8], "big") % 10**9 + 1


def combine_versions(versions: Iterable[int]) -> int:
    """Return the version of several objects together, in any order."""
    return compute_version(*sorted(versions))
