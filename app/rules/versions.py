"""Versions of objects: which ones a caller accepts, and numbers for objects without a counter."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from hashlib import sha256

from app.rules.errors import PreconditionFailed

# The versions that the caller of an operation accepts, such as those in If-Match. None accepts every version.
ExpectedVersion = int | Collection[int] | None


def require_version(version: int, expected: ExpectedVersion) -> None:
    """Require that the caller accepts this version. Raises PreconditionFailed."""
    if expected is not None and version not in ([expected] if isinstance(expected, int) else expected):
        raise PreconditionFailed("This was changed since you read it. Read it again.")


def compute_version(*values: object) -> int:
    """Return a number from 1 to 10^9 that depends only on the values. Use it for ETags, not for secrets."""
    text = json.dumps([str(value) for value in values])
    return int.from_bytes(sha256(text.encode()).digest()[:8], "big") % 10**9 + 1


def combine_versions(versions: Iterable[int]) -> int:
    """Return the version of several objects together, in any order."""
    return compute_version(*sorted(versions))
