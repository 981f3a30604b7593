"""Groups of timings compared by the two-sided Mann-Whitney U test (normal approximation)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import erfc, sqrt


@dataclass(slots=True)
class Samples:
    """Timings of a call: ``seconds`` of wall time and ``work``, the CPU seconds of this thread."""

    seconds: list[float] = field(default_factory=list)
    work: list[float] = field(default_factory=list)

    def take(self, call: Callable[[], object]) -> None:
        """Add a sample."""
        wall, busy = time.perf_counter(), time.thread_time()
        call()
        self.work.append(time.thread_time() - busy)
        self.seconds.append(time.perf_counter() - wall)


def same_distribution(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the probability (p) that groups of one distribution differ this much; at least 20 samples each."""
    ranked = sorted([(value, 0) for value in one] + [(value, 1) for value in other])
    ranks = sum(position for position, (_, group) in enumerate(ranked, start=1) if group == 0)
    count, others = len(one), len(other)
    u = ranks - count * (count + 1) / 2
    deviation = sqrt(count * others * (count + others + 1) / 12)
    return erfc(abs(u - count * others / 2) / deviation / sqrt(2))
