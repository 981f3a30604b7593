"""What clients sent and were told during a run, and the rules that every such history has to follow.

The checker is a function of the history alone. A thing is a token, a grant, a client or a secret, named by a string.
An operation uses, creates or ends things. Without a response it may have taken effect or not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

# Clients and the database measure the grace period with different clocks.
_MARGIN_SECONDS = 0.2
# Gatehouse says 503; a load balancer also 502 and 504, for a server that was killed or hangs.
UNAVAILABLE = {502, 503, 504}


class Outcome(Enum):
    """What a client knows about its operation."""

    OK = "accepted"
    REFUSED = "rejected"
    UNKNOWN = "no response, or one that says nothing, such as 503"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One request. ``began`` and ``ended`` are monotonic seconds of the client, ``status`` is 0 without a response.

    ``ends`` are the things that are unusable after it: at once at the same machine, and after ``seconds_elsewhere`` at
    the others, provided that it was accepted. ``may_end`` are those that it may end whatever its response was.
    ``consumes`` is a token that is exchanged for what it creates, and may be presented again for
    ``grace_seconds``. ``audited`` is the audit event that it must have written: the action and the id of the target.
    """

    name: str
    machine: int
    began: float
    ended: float
    status: int
    outcome: Outcome
    uses: frozenset[str] = frozenset()
    creates: frozenset[str] = frozenset()
    ends: frozenset[str] = frozenset()
    may_end: frozenset[str] = frozenset()
    consumes: str = ""
    seconds_elsewhere: float = 0.0
    audited: tuple[str, str] | None = None


class Rule(Enum):
    """A rule that a history can violate."""

    LOST = "what was acknowledged is usable until somebody ends it"
    REVIVED = "what was ended stays unusable"
    FORKED = "a refresh token has one successor"
    UNAUDITED = "what was acknowledged is in the audit log"
    CHAIN = "the audit log is intact"
    PURGED = "expired tokens are deleted a day later, and not before"
    ERROR = "no response is a 500"


@dataclass(frozen=True, slots=True)
class Violation:
    """A violated rule and how."""

    rule: Rule
    text: str


def check_history(
    history: Sequence[Operation],
    *,
    audited: Collection[tuple[str, str]] | None,
    chain_problems: Iterable[str] = (),
    purge_problems: Iterable[str] = (),
    grace_seconds: float,
    is_balanced: bool = False,
) -> list[Violation]:
    """Return every violation of the rules. ``audited`` are the audit events that every node of the database has.

    It is None if a node does not answer. ``is_balanced`` means that a load balancer chose the machines, so that nobody
    knows which.
    """
    found = [Violation(Rule.CHAIN, problem) for problem in chain_problems]
    found += [Violation(Rule.PURGED, problem) for problem in purge_problems]
    found += [
        Violation(Rule.ERROR, f"status {operation.status}: {_describe(operation)}")
        for operation in history
        if operation.status >= 500 and operation.status not in UNAVAILABLE
    ]
    found += [
        Violation(Rule.UNAUDITED, f"no event {operation.audited}: {_describe(operation)}")
        for operation in history
        if audited is not None
        and operation.outcome is Outcome.OK
        and operation.audited
        and operation.audited not in audited
    ]
    return [*found, *_find_forks(history), *_find_lost_and_revived(history, grace_seconds, is_balanced)]


def _find_forks(history: Sequence[Operation]) -> list[Violation]:
    successors: dict[str, set[frozenset[str]]] = defaultdict(set)
    for operation in history:
        if operation.consumes and operation.outcome is Outcome.OK:
            successors[operation.consumes].add(operation.creates)
    return [
        Violation(Rule.FORKED, f"{token} has {len(made)} successors")
        for token, made in successors.items()
        if len(made) > 1
    ]


def _find_lost_and_revived(
    history: Sequence[Operation], grace_seconds: float, is_balanced: bool
) -> list[Violation]:
    ending: dict[str, list[Operation]] = defaultdict(list)
    first_consumed: dict[str, float] = {}
    for operation in history:
        for thing in operation.may_end | (
            operation.ends if operation.outcome is not Outcome.REFUSED else set()
        ):
            ending[thing].append(operation)
        if operation.consumes and operation.outcome is not Outcome.REFUSED:
            first = first_consumed.get(operation.consumes, operation.began)
            first_consumed[operation.consumes] = min(first, operation.began)
    found: list[Violation] = []
    for operation in history:
        # What an operation ends, it may still use itself.
        ends = [end for thing in operation.uses for end in ending.get(thing, ()) if end is not operation]
        if operation.outcome is Outcome.OK:
            late = [end for end in ends if operation.uses & end.ends and _binds(end, operation, is_balanced)]
            if late:
                found.append(Violation(Rule.REVIVED, f"{_describe(operation)} after {_describe(late[0])}"))
        elif operation.outcome is Outcome.REFUSED:
            may_be_ended = any(end.began < operation.ended for end in ends)
            first = first_consumed.get(operation.consumes)
            is_too_late = first is not None and operation.ended > first + grace_seconds - _MARGIN_SECONDS
            if not may_be_ended and not is_too_late:
                found.append(Violation(Rule.LOST, f"{_describe(operation)}, status {operation.status}"))
    return found


def _binds(end: Operation, later: Operation, is_balanced: bool) -> bool:
    """Return whether the end was acknowledged early enough that the later operation must be rejected."""
    is_same = end.machine == later.machine and not is_balanced
    delay = 0.0 if is_same else end.seconds_elsewhere
    return end.outcome is Outcome.OK and later.began > end.ended + delay


def _describe(operation: Operation) -> str:
    things = ", ".join(sorted(operation.uses | operation.ends))
    return f"{operation.name} at machine {operation.machine}, {operation.began:.3f}–{operation.ended:.3f} ({things})"
