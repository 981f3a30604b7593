"""Calls that happen at the same moment, each in a thread with a connection of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from flask import Flask

from app.rules.errors import Conflict


def at_once(app: Flask, calls: Sequence[Callable[[], object]]) -> list[str]:
    """Each call in its own thread, released together; the names of what they returned or were refused with."""
    gate = threading.Barrier(len(calls))
    results: list[str] = []

    def run(call: Callable[[], object]) -> None:
        with app.app_context():
            gate.wait()
            try:
                results.append(type(call()).__name__)
            except Conflict as refusal:
                results.append(type(refusal).__name__)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
