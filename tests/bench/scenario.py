"""One thing to measure: who is asked what, and compared with what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.bench.load import MakeVisitor

WARM_UP_SECONDS = 1.0


class Prepare:
    """Makes a scenario at the start of each repeat, where one leaves its tokens spent."""

    def __init__(self, make: Callable[[], MakeVisitor]) -> None:
        self._make = make

    def __call__(self) -> MakeVisitor:
        return self._make()


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is measured, and the server that it asks: its port and process id."""

    name: str
    port: int
    pid: int
    make: MakeVisitor | Prepare
    floor: str = ""
    warm_up: float = WARM_UP_SECONDS
    connections: int | None = None

    def started(self) -> MakeVisitor:
        """The visitors of a repeat."""
        return self.make() if isinstance(self.make, Prepare) else self.make
