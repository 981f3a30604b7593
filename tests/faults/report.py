"""The summary of a run: what clients did and noticed before, during and after the faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.faults.history import Operation, Outcome, Rule, Violation
from tests.faults.injection import PLANNED, Injected

_SHOWN = 20
_OVERLOADED_SECONDS = 2.0
_UNAVAILABLE = 503


@dataclass(frozen=True, slots=True)
class Result:
    """A run. ``trouble`` says which fault could not be injected or repaired.

    ``swept`` are the requests after the last repair, ``unanswered`` the number of those that got no response,
    ``deleted`` the number of expired tokens that a janitor deleted meanwhile.
    """

    history: Sequence[Operation]
    swept: Sequence[Operation]
    faults: Sequence[Injected]
    violations: Sequence[Violation]
    unanswered: int
    deleted: int
    trouble: str = ""
    is_balanced: bool = False

    @property
    def noticed(self) -> list[Operation]:
        """The requests that failed behind a load balancer because machines were added or upgraded: none should.

        Whatever is restarted refuses or cuts a request at once. An overloaded machine lets it wait before it gives up,
        or its circuit breaker answers with 503 at once while others wait for the database.
        """
        planned = [fault for fault in self.faults if self.is_balanced and fault.name in PLANNED]
        slow = [row for row in self.history if row.ended - row.began >= _OVERLOADED_SECONDS]
        return [
            row
            for row in self.history
            if row.outcome is Outcome.UNKNOWN
            and row.ended - row.began < _OVERLOADED_SECONDS
            and any(_overlaps(row, fault) for fault in planned)
            and not (row.status == _UNAVAILABLE and any(_coincide(row, other) for other in slow))
        ]

    @property
    def is_good(self) -> bool:
        """Whether no rule was violated, every fault was repaired and every machine served again."""
        return not (self.violations or self.unanswered or self.trouble or self.noticed)


def describe(result: Result) -> str:
    """Return the summary as text."""
    lines = [*_operations(result.history, result.faults), ""]
    faults = _events if result.is_balanced else _faults
    lines += [*faults(result.history, result.faults), ""]
    found = Counter(violation.rule for violation in result.violations)
    lines += [f"{found[rule]:6}  {rule.name.lower():10} {rule.value}" for rule in Rule]
    lines.append(f"{result.unanswered:6}  unanswered of {len(result.swept)} requests after the last repair")
    lines.append(f"{result.deleted:6}  expired tokens deleted meanwhile")
    if result.is_balanced:
        lines.append(f"{len(result.noticed):6}  failed while a machine was added or all were upgraded")
        lines += [f"        {row.name}, status {row.status}" for row in result.noticed[:_SHOWN]]
    lines += [result.trouble] if result.trouble else []
    lines += [f"{violation.rule.name}: {violation.text}" for violation in result.violations[:_SHOWN]]
    return "\n".join(lines)


def write(result: Result, file: Path) -> None:
    """Write the whole history and the violations, one line each, in the order of time."""
    rows = [(row.began, str(row)) for row in (*result.history, *result.swept)]
    rows += [(fault.began, str(fault)) for fault in result.faults]
    lines = [line for _, line in sorted(rows)] + [str(violation) for violation in result.violations]
    file.write_text("\n".join(lines))


def _operations(history: Sequence[Operation], faults: Sequence[Injected]) -> list[str]:
    """Return a table of the operations with the 99th percentile of their durations in milliseconds."""
    columns = ("operation", "sent", "accepted", "rejected", "unavailable", "p99 before", "during", "after")
    lines = ["{:16} {:>7} {:>9} {:>9} {:>12} {:>11} {:>8} {:>8}".format(*columns)]
    for name in [*sorted({operation.name for operation in history}), ""]:
        rows = [operation for operation in history if name in ("", operation.name)]
        count = Counter(operation.outcome for operation in rows)
        share = count[Outcome.UNKNOWN] / max(1, len(rows))
        before, during, after = _by_phase(rows, faults)
        lines.append(
            f"{name or 'all':16} {len(rows):7} {count[Outcome.OK]:9} {count[Outcome.REFUSED]:9} {share:12.1%}"
            f" {_p99(before):>11} {_p99(during):>8} {_p99(after):>8}"
        )
    return lines


def _faults(history: Sequence[Operation], faults: Sequence[Injected]) -> list[str]:
    """Return a table of the faults, with the seconds until every machine accepted a request after the repair."""
    lines = [f"{'fault':20} {'times':>6} {'seconds':>8} {'unavailable':>12} {'recovered after':>16}"]
    machines = {operation.machine for operation in history}
    for name in dict.fromkeys(fault.name for fault in faults):
        same = [fault for fault in faults if fault.name == name]
        during = [row for row in history if any(_overlaps(row, fault) for fault in same)]
        unavailable = sum(row.outcome is Outcome.UNKNOWN for row in during) / max(1, len(during))
        recovered = max(_recovery(history, fault, machine) for fault in same for machine in machines)
        longest = max(fault.healed - fault.began for fault in same)
        lines.append(f"{name:20} {len(same):6} {longest:8.1f} {unavailable:12.1%} {recovered:14.1f} s")
    return lines


def _events(history: Sequence[Operation], faults: Sequence[Injected]) -> list[str]:
    """Return a table with three lines for each event: the time since the one before, its own, and until the next."""
    lines = [f"{'event':36} {'seconds':>8} {'sent':>7} {'failed':>7} {'p50':>9} {'p95':>9} {'p99':>9}"]
    began, ended = min(row.began for row in history), max(row.ended for row in history)
    bounds = [began, *(moment for fault in faults for moment in (fault.began, fault.healed)), ended]
    for number, fault in enumerate(faults):
        names = ("before", f"{fault.name}: {fault.target}", "after")
        for name, begin, end in zip(names, bounds[2 * number :], bounds[2 * number + 1 :], strict=False):
            rows = [row for row in history if begin < row.ended <= end]
            failed = sum(row.outcome is Outcome.UNKNOWN for row in rows)
            times = [row.ended - row.began for row in rows]
            shares = " ".join(f"{_percentile(times, share):>9}" for share in (0.5, 0.95, 0.99))
            lines.append(f"{name:36} {end - begin:8.1f} {len(rows):7} {failed:7} {shares}")
    return lines


def _recovery(history: Iterable[Operation], fault: Injected, machine: int) -> float:
    accepted = (
        row.ended
        for row in history
        if row.machine == machine and row.began >= fault.healed and row.outcome is Outcome.OK
    )
    return min(accepted, default=float("inf")) - fault.healed


def _by_phase(
    rows: Sequence[Operation], faults: Sequence[Injected]
) -> tuple[list[float], list[float], list[float]]:
    before, during, after = [], [], []
    first = min((fault.began for fault in faults), default=float("inf"))
    for row in rows:
        if row.ended < first:
            before.append(row.ended - row.began)
        elif any(_overlaps(row, fault) for fault in faults):
            during.append(row.ended - row.began)
        else:
            after.append(row.ended - row.began)
    return before, during, after


def _overlaps(row: Operation, fault: Injected) -> bool:
    return row.began < fault.healed and row.ended > fault.began


def _coincide(row: Operation, other: Operation) -> bool:
    return row.began < other.ended and row.ended > other.began


def _p99(durations: list[float]) -> str:
    return _percentile(durations, 0.99)


def _percentile(durations: list[float], share: float) -> str:
    if not durations:
        return "-"
    return f"{sorted(durations)[int(len(durations) * share)] * 1000:.0f} ms"
