"""A scenario: the requests, the server, and the baseline that it is compared with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.bench.load import MakeVisitor

WARM_UP_SECONDS = 1.0


class Prepare:
    """Creates a scenario at the start of each repeat, for scenarios that use up tokens."""

    def __init__(self, make: Callable[[], MakeVisitor]) -> None:
        self._make = make

    def __call__(self) -> MakeVisitor:
        return self._make()


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario with the port and process id of its server."""

    name: str
    port: int
    pid: int
    make: MakeVisitor | Prepare
    floor: str = ""
    warm_up: float = WARM_UP_SECONDS
    connections: int | None = None

    def started(self) -> MakeVisitor:
        """Return the visitors of a repeat."""
        return self.make() if isinstance(self.make, Prepare) else self.make
