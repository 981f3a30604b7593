"""Conditional requests: the ETag of a representation, and If-Match (RFC 9110)."""

from __future__ import annotations

import re

from flask import request

from app.rules.errors import InvalidInput, PreconditionFailed

_TAG = r'"[\x21\x23-\x7e]{1,64}"'
_LIST = re.compile(rf"(?:W/)?{_TAG}(?:\s*,\s*(?:W/)?{_TAG})*")
_VERSION = re.compile(r'(?<!W/)"v([1-9][0-9]{0,9})"')


def etag_of(version: int) -> str:
    """Return the strong ETag of a version."""
    return f'"v{version}"'


def expected_version() -> int | None:
    """Return the version in If-Match, or None if there is no such header or it is ``*``.

    Raises InvalidInput for a malformed header, PreconditionFailed for ETags that this service does not use.
    """
    header = request.headers.get("If-Match")
    if header is None or header.strip() == "*":
        return None
    if _LIST.fullmatch(header.strip()) is None:
        raise InvalidInput('If-Match must be an ETag from a response, such as "v3".', field="If-Match")
    versions = _VERSION.findall(header)
    if not versions:
        raise PreconditionFailed("This is not the current version. Read it again.")
    return max(int(version) for version in versions)
