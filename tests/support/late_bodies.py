"""Bodies of requests that come in while something else happens."""

from __future__ import annotations

import io
from collections.abc import Callable


class LateBody:
    """A request's body, as the server's own; before its first byte ``meanwhile`` is done."""

    def __init__(self, content: bytes, meanwhile: Callable[[], object]) -> None:
        self._content, self._meanwhile = io.BytesIO(content), meanwhile
        self.environment = {"wsgi.input": self, "CONTENT_LENGTH": str(len(content))}

    def read(self, size: int) -> bytes:
        if not self._content.tell():
            self._meanwhile()
        return self._content.read(size)
