"""Simultaneous calls, each in a thread with its own database connection."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from flask import Flask

from app.rules.errors import Conflict, NotFound


def at_once(app: Flask, calls: Sequence[Callable[[], object]]) -> list[str]:
    """Call each function in its own thread at once; return the names of their results or errors."""
    gate = threading.Barrier(len(calls))
    results: list[str] = []

    def run(call: Callable[[], object]) -> None:
        with app.app_context():
            gate.wait()
            try:
                results.append(type(call()).__name__)
            except (Conflict, NotFound) as refusal:
                results.append(type(refusal).__name__)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
