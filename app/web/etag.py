"""Versions on the wire: ETag of a resource, and If-Match of who wants to change what they read (RFC 9110)."""

from __future__ import annotations

import re

from flask import request

from app.rules.errors import InvalidInput, PreconditionFailed

_TAG = r'"[\x21\x23-\x7e]{1,64}"'
_LIST = re.compile(rf"(?:W/)?{_TAG}(?:\s*,\s*(?:W/)?{_TAG})*")
_OURS = re.compile(r'(?<!W/)"v([1-9][0-9]{0,9})"')


def etag_of(version: int) -> str:
    """The strong validator of a version."""
    return f'"v{version}"'


def expected_version() -> int | None:
    """The version that If-Match names, or None when there is no such header or it is ``*``.

    Raises InvalidInput for a header of another form, PreconditionFailed for tags that we never gave.
    """
    header = request.headers.get("If-Match")
    if header is None or header.strip() == "*":
        return None
    if _LIST.fullmatch(header.strip()) is None:
        raise InvalidInput('If-Match holds an ETag as it was given, such as "v3".', field="If-Match")
    versions = _OURS.findall(header)
    if not versions:
        raise PreconditionFailed("This is not the version that stands. Read it again.")
    return max(int(version) for version in versions)
