"""Simultaneous calls, each in a thread with its own database connection."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from flask import Flask

from app.rules.errors import Conflict, NotFound, Unavailable

ATTEMPTS = 5


def at_once(app: Flask, calls: Sequence[Callable[[], object]]) -> list[str]:
    """Call each function in its own thread at once; return the names of their results or errors.

    As clients do, call again what an overloaded machine made unavailable.
    """
    gate = threading.Barrier(len(calls))
    results: list[str] = []

    def run(call: Callable[[], object]) -> None:
        with app.app_context():
            gate.wait()
            for attempt in range(ATTEMPTS):
                try:
                    results.append(type(call()).__name__)
                except (Conflict, NotFound) as refusal:
                    results.append(type(refusal).__name__)
                except Unavailable:
                    if attempt == ATTEMPTS - 1:
                        raise
                    time.sleep(0.5)
                    continue
                break

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
