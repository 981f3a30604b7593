"""The application as the live server of the tests runs it: each answer also says which worker gave it.

For that server alone: to import this is to begin what a serving process does beside its requests.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from tests.support.process import WORKER_HEADER
from wsgi import app as gatehouse


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """``wsgi:app``, with the process id of the worker in a header."""

    def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        return start_response(status, [*headers, (WORKER_HEADER, str(os.getpid()))], exc_info)

    return gatehouse(environ, start)
