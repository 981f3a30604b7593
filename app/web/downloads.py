"""Downloads that are written while they are sent, such as exports.

A reader that is slow, or does not read at all, keeps a thread of the server for as long as it likes. So few may be
under way at a time, and one organization's leave room for those of others (P2).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import chain, islice

from flask import Response, stream_with_context

from app.rules.errors import TooManyRequests

MAX_DOWNLOADS = 6
"""In this process, of its ``Config.LATE_THREADS`` and more threads."""
MAX_DOWNLOADS_PER_ORGANIZATION = 2
INCOMPLETE = "ERROR: This file is incomplete, because the server could not read the rest. Download it again."
"""The last line of a file whose end could not be read. It is neither JSON nor a row."""
_under_way: Counter[str] = Counter()
_lock = threading.Lock()


def download(organization_id: str, pieces: Iterable[str], mimetype: str, name: str) -> Response:
    """Return the pieces as a file of that name, on behalf of the organization.

    The first two, a heading and a row, are read here, so that a database that is away is answered by 503. If it is lost
    later, the last line is INCOMPLETE: Granian ends such a response like any other, so that clients see no error.
    Raises TooManyRequests while too many downloads are under way.
    """
    slot = _take_slot(organization_id)
    rest = iter(pieces)
    try:
        first = list(islice(rest, 2))
    except BaseException:
        slot.close()
        raise
    response = Response(stream_with_context(_send_all(slot, chain(first, rest))), mimetype=mimetype)
    # Also if the reader has gone, or wants only the headers.
    response.call_on_close(slot.close)
    response.headers["Cache-Control"] = "no-store"
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def _take_slot(organization_id: str) -> ExitStack:
    """Take a slot, which closing the stack frees."""
    with _lock:
        running, own = _under_way.total(), _under_way[organization_id]
        # A second one only while half of the slots are free, so that three organizations cannot hold all.
        if running >= (MAX_DOWNLOADS // 2 if own else MAX_DOWNLOADS) or own >= MAX_DOWNLOADS_PER_ORGANIZATION:
            raise TooManyRequests(
                "Too many downloads are under way. Try again when one has ended.", retry_after=10
            )
        _under_way[organization_id] += 1
    slot = ExitStack()
    slot.callback(_free_slot, organization_id)
    return slot


def _free_slot(organization_id: str) -> None:
    with _lock:
        _under_way[organization_id] -= 1
        if not _under_way[organization_id]:
            del _under_way[organization_id]


def _send_all(slot: ExitStack, pieces: Iterable[str]) -> Iterator[str]:
    """Yield the pieces and free the slot."""
    with slot:
        try:
            yield from pieces
        except Exception:
            yield f"\n{INCOMPLETE}\n"
            raise
