"""Files that are sent while they are read from the database."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, islice

from flask import Response, stream_with_context


def download(pieces: Iterable[str], mimetype: str, name: str) -> Response:
    """Return the pieces as a file of that name.

    The first two, a heading and a row, are read here, so that a database that is away is answered by 503. If it is lost
    later, the server closes the connection before the end of the response, which clients report as an error.
    """
    rest = iter(pieces)
    first = list(islice(rest, 2))
    response = Response(stream_with_context(chain(first, rest)), mimetype=mimetype)
    response.headers["Cache-Control"] = "no-store"
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return response
