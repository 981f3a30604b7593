"""The tests that ``script/test fast`` leaves out, in tests/slow.txt. ``script/test slow`` finds them again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

SLOW_SECONDS = 0.06
# A longer setup is that of all tests, before the first one.
SETUP_SECONDS = 1
_LIST = Path(__file__).parents[1] / "slow.txt"


def name_of(nodeid: str) -> str:
    """Return the name of a test without that of its case."""
    return nodeid.partition("[")[0]


def listed() -> set[str]:
    """Return the names of the slow tests."""
    return set(_LIST.read_text().splitlines())


class Clock:
    """A plugin that writes the list after a run without failures."""

    def __init__(self) -> None:
        self._seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "setup" or report.duration < SETUP_SECONDS:
            self._seconds[name_of(report.nodeid)] += report.duration

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        if exitstatus != 0:
            return
        slow = sorted(name for name, seconds in self._seconds.items() if seconds > SLOW_SECONDS)
        _LIST.write_text("".join(f"{name}\n" for name in slow))
