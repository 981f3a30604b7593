"""Timings in groups, and whether two groups differ: Mann–Whitney's U test, two-sided, by its normal approximation."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import erfc, sqrt


@dataclass(slots=True)
class Samples:
    """What a call took: ``seconds`` on the wall, and ``work``, the seconds that this thread's processor was busy."""

    seconds: list[float] = field(default_factory=list)
    work: list[float] = field(default_factory=list)

    def take(self, call: Callable[[], object]) -> None:
        """One more sample."""
        wall, busy = time.perf_counter(), time.thread_time()
        call()
        self.work.append(time.thread_time() - busy)
        self.seconds.append(time.perf_counter() - wall)


def same_distribution(one: Sequence[float], other: Sequence[float]) -> float:
    """The probability (p) that groups of one distribution differ as much as these; for 20 samples and more each."""
    ranked = sorted([(value, 0) for value in one] + [(value, 1) for value in other])
    ranks = sum(position for position, (_, group) in enumerate(ranked, start=1) if group == 0)
    count, others = len(one), len(other)
    u = ranks - count * (count + 1) / 2
    deviation = sqrt(count * others * (count + others + 1) / 12)
    return erfc(abs(u - count * others / 2) / deviation / sqrt(2))
