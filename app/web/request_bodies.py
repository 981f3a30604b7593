"""Size limits of request bodies: a few routes accept files, which are larger than the limit of all others."""

from __future__ import annotations

from collections.abc import Callable

from flask import request

from app.rules.errors import DomainError
from app.web.browser_session import forget_sign_ins

# What a form carries besides its file.
_FORM_BYTES = 64 * 1024


class TooLarge(DomainError):
    """The body is larger than the route accepts."""

    status = 413
    code = "too_large"


def accept_large_form(max_bytes: int) -> None:
    """Let this request's form carry a file of so many bytes.

    The upload may take minutes, so whether the user is still signed in is read again after it (SS-5).
    """
    request.max_content_length = max_bytes + _FORM_BYTES
    # Werkzeug applies this limit to its parser's buffer too, which it fills in pieces of 64 KiB.
    request.max_form_memory_size = 4 * _FORM_BYTES
    forget_sign_ins()


def body_reader(max_bytes: int) -> Callable[[int], bytes]:
    """Return the function that reads the body. Raises TooLarge when its announced length is too large."""
    if (request.content_length or 0) > max_bytes:
        raise TooLarge(f"This body may have at most {max_bytes // 1024 // 1024} MiB.")
    # The caller counts the bytes of a body without an announced length.
    request.max_content_length = max_bytes + 1
    return request.stream.read


def read_body(max_bytes: int) -> bytes:
    """Return the body, at most one byte more than ``max_bytes``. Raises TooLarge and TooSlow."""
    read, content = body_reader(max_bytes), bytearray()
    while len(content) <= max_bytes and (piece := read(max_bytes + 1 - len(content))):
        content += piece
    return bytes(content)
