"""Uploads: bodies larger than others, read a piece at a time, by few at once, and not for ever.

A line that sends slowly, or nothing any more, holds a thread of the process for as long as it is read. So who sends
asks for a place first, an organization has one of them, and the whole and each piece have their time. A server's
``read`` cannot be interrupted: a thread beside the request's waits for it, and is left behind when the time is over.
It may wait for ever, for a connection that nobody closes: so those left behind are bounded too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from queue import Empty, SimpleQueue
from typing import Any

from flask import Flask, g, request

from app.rules.errors import DomainError, TooManyRequests, Unavailable
from app.web.browser_session import forget_sign_ins

MOST_AT_ONCE = 4
"""Half of a process's threads: as many organizations must send slowly together before another is told to wait."""
MOST_HANGING = 64
"""Threads of a process that were left behind; each holds a connection and little else."""
MOST_HANGING_OF_ONE = 8
"""So that one organization does not use up what is for all."""
PIECE_BYTES = 64 * 1024
PIECE_SECONDS = 15.0
"""For each 64 KiB: a line that is slower than 35 kbit/s is given up."""
WHOLE_SECONDS = 300.0
"""And as long does a line that was left behind count as the one of its organization."""
_PLACE = "place_to_upload"


class TooLarge(DomainError):
    """The body is larger than this route takes."""

    status = 413
    code = "too_large"


class TooSlow(DomainError):
    """The body did not come in its time."""

    status = 408
    code = "too_slow"

    def __init__(self) -> None:
        super().__init__("The file came in too slowly. Send it over a faster line, or in parts.")


class _Lines:
    """Who sends at this moment, one for each organization; ``hanging`` are those whose line was left behind."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: set[str] = set()
        # Until when, in this process's time, the line of the organization counts as one that still sends.
        self._hanging: dict[tuple[str, object], float] = {}

    def take(self, organization_id: str) -> None:
        with self._lock:
            own = [until for (owner, _), until in self._hanging.items() if owner == organization_id]
            if organization_id in self._taken or any(until > time.monotonic() for until in own):
                raise TooManyRequests(
                    "Another file of this organization is coming in. Try again in a few seconds.",
                    retry_after=5,
                )
            if len(own) >= MOST_HANGING_OF_ONE:
                raise TooManyRequests(
                    "Connections of this organization stopped in the middle of a file and are still open. "
                    "Close them, and try again.",
                    retry_after=5,
                )
            if len(self._taken) >= MOST_AT_ONCE or len(self._hanging) >= MOST_HANGING:
                raise Unavailable(
                    "Other files are coming in at this moment. Try again in a few seconds.", retry_after=5
                )
            self._taken.add(organization_id)

    def leave(self, organization_id: str, line: object, *, hangs: bool) -> None:
        with self._lock:
            self._taken.discard(organization_id)
            if hangs:
                self._hanging[organization_id, line] = time.monotonic() + WHOLE_SECONDS

    def line_ended(self, organization_id: str, line: object) -> None:
        with self._lock:
            self._hanging.pop((organization_id, line), None)


_lines = _Lines()


class _Timed:
    """A request's body that is read by a thread of its own, each piece and the whole in their time."""

    def __init__(self, stream: Any, at_end: Callable[[_Timed], None]) -> None:
        self._stream, self._at_end = stream, at_end
        self._wanted: SimpleQueue[int] = SimpleQueue()
        self._pieces: SimpleQueue[bytes | Exception] = SimpleQueue()
        self._ends_at = time.monotonic() + WHOLE_SECONDS
        self._thread: threading.Thread | None = None
        self._is_over = False

    def read(self, size: int = -1) -> bytes:
        """At most so many bytes and a piece's worth at once, none at the end. Raises TooSlow."""
        if self._is_over:
            raise TooSlow
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="upload", daemon=True)
            self._thread.start()
        self._wanted.put(PIECE_BYTES if size < 0 else min(size, PIECE_BYTES))
        try:
            piece = self._pieces.get(timeout=max(0.0, min(PIECE_SECONDS, self._ends_at - time.monotonic())))
        except Empty:
            self._is_over = True
            raise TooSlow from None
        if isinstance(piece, Exception):
            raise piece
        return piece

    @property
    def hangs(self) -> bool:
        """Whether the thread was left behind, waiting for its line."""
        return self._is_over

    def close(self) -> None:
        """Nothing more is read."""
        self._wanted.put(0)

    def _work(self) -> None:
        while size := self._wanted.get():
            try:
                self._pieces.put(self._stream.read(size))
            except Exception as error:  # noqa: BLE001 - it is raised again where the piece is asked for
                self._pieces.put(error)
        self._at_end(self)


@contextmanager
def place_to_upload(organization_id: str) -> Iterator[None]:
    """One of the few places of this process, and the request's body in its time; asked before a byte is read.

    Raises TooManyRequests while the organization has one, Unavailable while there is none.
    """
    _lines.take(organization_id)
    timed = _Timed(request.environ["wsgi.input"], lambda line: _lines.line_ended(organization_id, line))
    request.environ["wsgi.input"] = timed
    try:
        yield
    finally:
        # In this order: the thread says that its line has ended, which must not be said too early.
        _lines.leave(organization_id, timed, hangs=timed.hangs)
        timed.close()


def hold_place(organization_id: str) -> None:
    """As ``place_to_upload``, until the request ends: a form's body is read before any view is asked.

    Whoever asks after it who is signed in reads it anew: the body may come for minutes (SS-5).
    """
    stack = ExitStack()
    stack.enter_context(place_to_upload(organization_id))
    setattr(g, _PLACE, stack)
    forget_sign_ins()


def register(app: Flask) -> None:
    """What a request held is free when it ends."""

    @app.teardown_request
    def let_go(_error: BaseException | None) -> None:
        held: ExitStack | None = g.pop(_PLACE, None)
        if held is not None:
            held.close()


def body_reader(longest: int) -> Callable[[int], bytes]:
    """Reads so many more bytes of the request's body. Raises TooLarge for one that says that it is longer."""
    if (request.content_length or 0) > longest:
        raise TooLarge(f"This body may have at most {longest // 1024 // 1024} MiB.")
    # What comes without a length is counted by who reads it.
    request.max_content_length = longest + 1
    return request.stream.read


def read_body(longest: int) -> bytes:
    """The request's body, one byte more than ``longest`` at most. Raises TooLarge as ``body_reader`` does, TooSlow."""
    read, content = body_reader(longest), bytearray()
    while len(content) <= longest and (piece := read(longest + 1 - len(content))):
        content += piece
    return bytes(content)
