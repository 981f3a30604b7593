"""The application as the live test server runs it: each response names its worker.

Only for that server: importing this starts the background work of a serving process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from tests.support.process import WORKER_HEADER
from wsgi import app as gatehouse


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Call ``wsgi:app`` and add the worker's process id as a header."""

    def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        return start_response(status, [*headers, (WORKER_HEADER, str(os.getpid()))], exc_info)

    return gatehouse(environ, start)
