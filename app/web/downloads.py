"""Downloads that are written while they are sent, such as exports.

A reader that is slow, or does not read at all, keeps a thread of the server for as long as it likes. So few may be
under way at a time, and one organization's leave room for those of others (P2).
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import chain, islice

from flask import Response, stream_with_context

from app.operations.store.slots import Slots
from app.rules.errors import TooManyRequests


def _refuse() -> TooManyRequests:
    return TooManyRequests("Too many downloads are under way. Try again when one has ended.", retry_after=10)


# Of ``Config.LATE_THREADS`` threads and more.
SLOTS = Slots(6, 2, _refuse)
INCOMPLETE = "ERROR: This file is incomplete, because the server could not read the rest. Download it again."
"""The last line of a file whose end could not be read. It is neither JSON nor a row."""


def download(organization_id: str, pieces: Iterable[str], mimetype: str, name: str) -> Response:
    """Return the pieces as a file of that name, on behalf of the organization.

    The first two, a heading and a row, are read here, so that a database that is away is answered by 503. If it is lost
    later, the last line is INCOMPLETE: Granian ends such a response like any other, so that clients see no error.
    Raises TooManyRequests while too many downloads are under way.
    """
    slot = SLOTS.take(organization_id)
    rest = iter(pieces)
    try:
        first = list(islice(rest, 2))
    except BaseException:
        slot.close()
        raise
    response = Response(stream_with_context(_send_all(slot, chain(first, rest))), mimetype=mimetype)
    # Also if the reader has gone, or wants only the headers.
    response.call_on_close(slot.close)
    # Or if it is never sent, because something failed after the view.
    weakref.finalize(response, slot.close)
    response.headers["Cache-Control"] = "no-store"
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def _send_all(slot: ExitStack, pieces: Iterable[str]) -> Iterator[str]:
    """Yield the pieces and free the slot."""
    with slot:
        try:
            yield from pieces
        except Exception:
            yield f"\n{INCOMPLETE}\n"
            raise
