"""The table that a run prints, line by line."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """One scenario; ``floor`` names the line that it is compared with."""

    name: str
    rate: float
    p50: float
    p99: float
    errors: int
    sample: str
    floor: str
    app_us: float
    database_us: float
    spread: float


class Report:
    """The results so far."""

    def __init__(self) -> None:
        self._lines: dict[str, Line] = {}
        self._notes: list[str] = []
        self._bars: list[tuple[bool, str]] = []

    def head(self, options: argparse.Namespace) -> None:
        """Print a heading and the conditions."""
        print(
            f"{os.cpu_count()} cores, {options.workers} workers x {options.threads} threads, "
            f"{options.connections} connections, {options.repeats} x {options.seconds:g} s, "
            f"MariaDB with innodb_flush_log_at_trx_commit=1, Python {platform.python_version()} "
            f"({sys.base_prefix}), which sums up a million numbers in {_milliseconds_of_a_loop():.0f} ms\n"
        )
        print(
            f"{'':<40}{'ops/s':>9}{'p50 ms':>9}{'p99 ms':>9}{'errors':>8}{'app us':>8}{'db us':>7}{'spread':>8}  ratio",
            flush=True,
        )

    def add(self, line: Line) -> None:
        """Print the line with its ratio to the baseline."""
        self._lines[line.name] = line
        print(
            f"{line.name:<40}{line.rate:>9.0f}{line.p50:>9.2f}{line.p99:>9.2f}{line.errors:>8}"
            f"{line.app_us:>8.0f}{line.database_us:>7.0f}{line.spread:>8.0%}  {self._ratio(line.name, line.floor)}",
            flush=True,
        )
        if line.sample:
            print(f"    an error: {line.sample}", flush=True)

    def judge(self, name: str, against: str, *, of_floor: float, of_peer: float) -> None:
        """Compare a flow with its baseline, unless that is bare Flask, and with the peer if that was measured."""
        wanted = {f"{name}: oidc-provider": of_peer} | (
            {f"{name}: floor": of_floor} if against == "floor" else {}
        )
        for other, least in wanted.items():
            if name in self._lines and other in self._lines and self._lines[other].rate:
                self.bar(
                    f"{name}, of {other}", self._lines[name].rate / self._lines[other].rate, at_least=least
                )

    def judge_sqlite(self, on_mariadb: str, on_sqlite: str) -> None:
        """Compare a flow on SQLite with the same on MariaDB, and its slowest requests with what people notice."""
        if on_sqlite in self._lines:
            rate = self._lines[on_sqlite].rate / self._lines[on_mariadb].rate
            self.bar(f"{on_sqlite}, of {on_mariadb}", rate, at_least=0.33)
            self.bar(f"{on_sqlite}, p99 in ms", self._lines[on_sqlite].p99, at_most=150)

    def judge_flat(self, name: str, small: str, grown: str, *, within: float) -> None:
        """Compare a scenario in a grown database with the same in a small one."""
        pair = [self._lines.get(f"{name}, {each}") for each in (grown, small)]
        if pair[0] and pair[1] and pair[1].rate:
            self.bar(f"{name}, {grown} of {small}", pair[0].rate / pair[1].rate, at_least=1 - within)

    def note(self, text: str) -> None:
        """Add a sentence for the end."""
        self._notes.append(text)

    def bar(
        self, name: str, value: float, *, at_least: float | None = None, at_most: float | None = None
    ) -> None:
        """Record a target and whether this run met it."""
        kept = (at_least is None or value >= at_least) and (at_most is None or value <= at_most)
        wanted = f"at least {at_least:g}" if at_least is not None else f"at most {at_most:g}"
        self._bars.append((kept, f"{'kept  ' if kept else 'MISSED'}  {name}: {value:.2f} ({wanted})"))

    def compare_crowd(self) -> None:
        """Compare each scenario with many organizations and with one: within 15 percent."""
        for name in (
            "sign-in page",
            "sign-in",
            "crowd token",
            "overview page",
            "users page",
            "list of organizations",
        ):
            self._compare([line for line in self._lines.values() if _is(line.name, name, "organizations")])

    def close(self) -> bool:
        """Print the notes and the targets; return whether one was missed."""
        print()
        for name in ("client_credentials", "introspection"):
            for what in ("rows", "organizations"):
                self._compare([line for line in self._lines.values() if _is(line.name, name, what)])
        for note in self._notes:
            print(note)
        print("\nBars:")
        for _, words in self._bars:
            print(f"  {words}")
        return not all(kept for kept, _ in self._bars)

    def _compare(self, lines: list[Line]) -> None:
        for line in lines[1:]:
            first = lines[0].name.rpartition(", ")[2]
            self.bar(f"{line.name}, of that with {first}", line.rate / lines[0].rate, at_least=0.85)

    def _ratio(self, name: str, floor: str) -> str:
        if floor not in self._lines or not self._lines[floor].rate:
            return ""
        return f"{self._lines[name].rate / self._lines[floor].rate:.2f} of {floor}"


def _is(line: str, name: str, what: str) -> bool:
    return line.startswith(f"{name}, ") and line.endswith(f" {what}")


def _milliseconds_of_a_loop() -> float:
    """Return the CPU time of a plain loop, by which runs with other machines and Pythons can be told apart."""

    def once() -> float:
        began, total = time.process_time(), 0
        for number in range(1_000_000):
            total += number
        return time.process_time() - began

    return min(once() for _ in range(5)) * 1000
