"""Uploads: bodies larger than others, read a piece at a time, by few at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from flask import request

from app.rules.errors import DomainError, Unavailable

MOST_AT_ONCE = 2
_places = threading.BoundedSemaphore(MOST_AT_ONCE)


class TooLarge(DomainError):
    """The body is larger than this route takes."""

    status = 413
    code = "too_large"


@contextmanager
def place_to_upload() -> Iterator[None]:
    """One of the few places of this process; a slow line holds a thread for as long as it sends."""
    if not _places.acquire(blocking=False):
        raise Unavailable(
            "Other files are coming in at this moment. Try again in a few seconds.", retry_after=5
        )
    try:
        yield
    finally:
        _places.release()


def body_reader(longest: int) -> Callable[[int], bytes]:
    """Reads so many more bytes of the request's body. Raises TooLarge for one that says that it is longer."""
    if (request.content_length or 0) > longest:
        raise TooLarge(f"This body may have at most {longest // 1024 // 1024} MiB.")
    # What comes without a length is counted by who reads it.
    request.max_content_length = longest + 1
    return request.stream.read
