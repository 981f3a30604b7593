"""Whether two groups of timings differ: Mann–Whitney's U test, two-sided, by its normal approximation."""

from __future__ import annotations

from collections.abc import Sequence
from math import erfc, sqrt


def same_distribution(one: Sequence[float], other: Sequence[float]) -> float:
    """The probability (p) that groups of one distribution differ as much as these; for 20 samples and more each."""
    ranked = sorted([(value, 0) for value in one] + [(value, 1) for value in other])
    ranks = sum(position for position, (_, group) in enumerate(ranked, start=1) if group == 0)
    count, others = len(one), len(other)
    u = ranks - count * (count + 1) / 2
    deviation = sqrt(count * others * (count + others + 1) / 12)
    return erfc(abs(u - count * others / 2) / deviation / sqrt(2))
