"""Where two addresses differ: for people who look at two that seem the same."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile


@dataclass(frozen=True, slots=True)
class Difference:
    """``received`` and the ``closest`` of what was expected: alike in ``before`` and ``after``, not between them."""

    closest: str
    before: str
    received: str
    expected: str
    after: str

    @property
    def words(self) -> str:
        """What is different, in words: a slash alone is hard to see."""
        if not self.received:
            return f"“{self.expected}” is missing."
        if not self.expected:
            return f"“{self.received}” is extra."
        return f"“{self.received}” stands where “{self.expected}” should."


def difference(received: str, expected: Iterable[str]) -> Difference | None:
    """The difference from the expected text that is nearest; None when there is none to compare with."""
    found = [_compared(received, text) for text in expected]
    return max(found, key=lambda one: len(one.before) + len(one.after), default=None)


def _compared(received: str, expected: str) -> Difference:
    before = _common(received, expected)
    rest, wanted = received[len(before) :], expected[len(before) :]
    after = _common(rest[::-1], wanted[::-1])[::-1]
    return Difference(expected, before, rest.removesuffix(after), wanted.removesuffix(after), after)


def _common(first: str, second: str) -> str:
    """What both begin with."""
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))
    return "".join(pair[0] for pair in pairs)
