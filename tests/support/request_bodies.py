"""Request bodies that arrive in unusual ways."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable


class BodyWithCallback:
    """A request body; ``before_first_byte`` is called when the server begins to read it."""

    def __init__(self, content: bytes, before_first_byte: Callable[[], object]) -> None:
        self._content, self._before_first_byte = io.BytesIO(content), before_first_byte
        self.environment = {"wsgi.input": self, "CONTENT_LENGTH": str(len(content))}

    def read(self, size: int) -> bytes:
        if not self._content.tell():
            self._before_first_byte()
        return self._content.read(size)


class StalledBody:
    """A request body that blocks after its first bytes, until ``connection_closed`` is set."""

    def __init__(self, content: bytes, length: int) -> None:
        self.connection_closed = threading.Event()
        self._pieces = [content]
        self.environment = {"wsgi.input": self, "CONTENT_LENGTH": str(length)}

    def read(self, size: int) -> bytes:
        if self._pieces:
            return self._pieces.pop()
        self.connection_closed.wait(20)
        return b""
