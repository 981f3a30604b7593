"""Request bodies: limits of size, no Content-Encoding, and a deadline for every body.

A slow sender gets 408, and other requests are served meanwhile. A server's ``read`` blocks until the bytes have
arrived and cannot be interrupted. So another thread waits for it, and the request's own thread answers 408 at the
deadline. Under Granian a response must not end while its request is being read: Granian would wait for the read and
hold the interpreter lock, and the whole process would stop. So the thread of a late request stays with it, after its
response was sent, until the connection is closed. The server has ``Config.LATE_THREADS`` threads more than it needs,
for those.
"""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from flask import Flask, request

from app.config import Config
from app.rules.errors import DomainError, HasDefaultText
from app.rules.languages.translation import lazy_gettext
from app.web.browser_session import forget_sign_ins

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


# The size of a form without its file.
_FORM_BYTES = 64 * 1024
MIN_BYTES_PER_SECOND = 8 * 1024
MAX_BODY_SECONDS = 300.0
_PIECE_BYTES = 64 * 1024
# Handing a read to another thread would cost the busiest endpoints a quarter of their time. So they read bodies
# directly, as long as fewer than this many direct reads are unfinished. A slow one gets its 408 when it ends.
MAX_DIRECT_READS = 2
_DIRECT_PATHS = ("/oauth/token", "/oauth/introspect", "/oauth/revoke")
_direct_slots = list(range(MAX_DIRECT_READS))


class TooLarge(DomainError):
    """The body is larger than the route accepts."""

    status = 413
    code = "too_large"


class EncodedBody(HasDefaultText):
    """The body has a Content-Encoding. None is decoded, so it must not be read as if it had none."""

    status = 415
    code = "unsupported_media_type"
    default_description = lazy_gettext("Send the body without a Content-Encoding.")


def accept_large_form(max_bytes: int) -> None:
    """Allow a file of this many bytes in the request's form.

    The upload may take minutes, so whether the user is still signed in is read again after it (SS-5).
    """
    request.max_content_length = max_bytes + _FORM_BYTES
    # Werkzeug applies this limit to its parser's buffer too, which it fills in pieces of 64 KiB.
    request.max_form_memory_size = 4 * _FORM_BYTES
    forget_sign_ins()


def body_reader(max_bytes: int) -> Callable[[int], bytes]:
    """Return the function that reads the body. Raises TooLarge when its announced length is too large."""
    if (request.content_length or 0) > max_bytes:
        raise TooLarge(lazy_gettext("This body may have at most %(max)s MiB.", max=max_bytes // 1024 // 1024))
    # The caller counts the bytes of a body without an announced length.
    request.max_content_length = max_bytes + 1
    return request.stream.read


def read_body(max_bytes: int) -> bytes:
    """Return the body, at most one byte more than ``max_bytes``. Raises TooLarge and TooSlow."""
    read, content = body_reader(max_bytes), bytearray()
    while len(content) <= max_bytes and (piece := read(max_bytes + 1 - len(content))):
        content += piece
    return bytes(content)


class TooSlow(HasDefaultText):
    """The body did not arrive before its deadline."""

    status = 408
    code = "too_slow"
    default_description = lazy_gettext("The request arrived too slowly. Try again on a faster connection.")


class _Reader:
    """A thread that executes one blocking read at a time."""

    def __init__(self) -> None:
        self._reads: SimpleQueue[tuple[Any, int]] = SimpleQueue()
        self._results: SimpleQueue[bytes | Exception] = SimpleQueue()
        threading.Thread(target=self._work, name="body reader", daemon=True).start()

    def begin(self, stream: Any, size: int) -> None:
        """Start reading this many bytes; ``finish`` returns them."""
        self._reads.put((stream, size))

    def finish(self, seconds: float | None = None) -> bytes:
        """Return what the stream's read returned. Raises TooSlow if that takes longer than this many seconds."""
        try:
            result = self._results.get(timeout=seconds)
        except Empty:
            raise TooSlow from None
        _idle_readers.append(self)
        if isinstance(result, Exception):
            raise result
        return result

    def _work(self) -> None:
        while True:
            stream, size = self._reads.get()
            try:
                result: bytes | Exception = stream.read(size)
            except Exception as error:  # noqa: BLE001 - raised again in the request's thread
                result = error
            del stream
            self._results.put(result)


# The server's own threads limit their number: each request that is being read has one.
_idle_readers: list[_Reader] = []


class TimedBody(io.RawIOBase):
    """A body that has ``grace_seconds``, and a second more for each MIN_BYTES_PER_SECOND; MAX_BODY_SECONDS in all."""

    def __init__(
        self, stream: Any, grace_seconds: float, length: int | None = None, *, is_direct: bool = False
    ) -> None:
        self._stream, self._grace, self._length, self._received = stream, grace_seconds, length, 0
        self._is_direct = is_direct
        self._reader: _Reader | None = None
        self._started = time.monotonic()
        self.is_late = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self.is_late:
            raise TooSlow
        size = min(len(buffer), _PIECE_BYTES)
        if self._length is not None:
            size = min(size, self._length - self._received)
        if size == 0:
            return 0
        seconds = min(MAX_BODY_SECONDS, self._grace + (self._received + size) / MIN_BYTES_PER_SECOND)
        piece = self._read(size, self._started + seconds)
        self._received += len(piece)
        buffer[: len(piece)] = piece
        return len(piece)

    def wait(self) -> None:
        """Return once the read that was too slow has ended."""
        if self._reader is not None:
            with suppress(Exception):
                self._reader.finish()

    def _read(self, size: int, deadline: float) -> bytes:
        if self._is_direct:
            try:
                slot = _direct_slots.pop()
            except IndexError:
                pass
            else:
                try:
                    piece: bytes = self._stream.read(size)
                finally:
                    _direct_slots.append(slot)
                self.is_late = time.monotonic() > deadline
                if self.is_late:
                    raise TooSlow
                return piece
        try:
            self._reader = _idle_readers.pop()
        except IndexError:
            self._reader = _Reader()
        self._reader.begin(self._stream, size)
        try:
            return self._reader.finish(max(0.0, deadline - time.monotonic()))
        except TooSlow:
            self.is_late = True
            raise


class _UnreadableBody(io.RawIOBase):
    def readable(self) -> bool:
        return True

    def readinto(self, _buffer: Any) -> int:
        raise EncodedBody


def is_encoded(environ: WSGIEnvironment) -> bool:
    """Return whether the request has a Content-Encoding (RFC 9110 section 8.4)."""
    return environ.get("HTTP_CONTENT_ENCODING", "").strip().lower() not in {"", "identity"}


class BodyDeadline:
    """WSGI middleware that gives every body its deadline, and closes the connection whose body was late.

    An encoded body cannot be read.
    """

    def __init__(self, application: WSGIApplication, grace_seconds: float) -> None:
        self._application, self._grace = application, grace_seconds

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        length = environ.get("CONTENT_LENGTH", "")
        if length in {"", "0"} and "HTTP_TRANSFER_ENCODING" not in environ:
            return self._application(environ, start_response)
        if is_encoded(environ):
            environ["wsgi.input"] = _UnreadableBody()
            return self._application(environ, _naming_encodings(start_response))
        known = int(length) if length.isascii() and length.isdigit() and len(length) < 20 else None
        is_direct = environ["PATH_INFO"].endswith(_DIRECT_PATHS)
        body = TimedBody(environ["wsgi.input"], self._grace, known, is_direct=is_direct)
        environ["wsgi.input"] = body

        def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
            if body.is_late:
                headers.append(("Connection", "close"))
            return start_response(status, headers, exc_info) if exc_info else start_response(status, headers)

        response = self._application(environ, start)
        if body.is_late and environ.get("SERVER_SOFTWARE") == "Granian":
            return _stay_with(response, body)
        return response


def _naming_encodings(start_response: StartResponse) -> StartResponse:
    """Add to a 415 which encodings are accepted (RFC 9110 section 15.5.16)."""

    def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        if status.startswith("415"):
            headers.append(("Accept-Encoding", "identity"))
        return start_response(status, headers, exc_info) if exc_info else start_response(status, headers)

    return start


def _stay_with(response: Iterable[bytes], body: TimedBody) -> Iterator[bytes]:
    yield from response
    body.wait()


def register(app: Flask) -> None:
    """Give every request body its deadline."""
    config: Config = app.config["GATEHOUSE"]
    app.wsgi_app = BodyDeadline(app.wsgi_app, config.body_timeout)  # type: ignore[method-assign]
