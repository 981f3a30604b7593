"""The Basic authorization header, whose two parts are form-encoded (RFC 6749 section 2.3.1)."""

from __future__ import annotations

import base64
import binascii
from urllib.parse import unquote_plus


def read_basic(header: str) -> tuple[str, str] | None:
    """Return (name, secret) of an ``Authorization: Basic`` header, or None when it is malformed."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        decoded = base64.b64decode(encoded.strip(), validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    name, colon, secret = decoded.partition(":")
    return (unquote_plus(name), unquote_plus(secret)) if colon else None
