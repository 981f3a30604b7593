"""Cache invalidation against a model: stalled commits, lost polls, stopped processes, restarts and failovers.

The followers and caches are the real ones; the database is one of this file, where ids have no order. The processes
have no clock but ``uptime``, which every rule may let go on. Whatever happens, nobody uses a value that was replaced
more than a second ago, or, on the machine of its writer, before the change was acknowledged.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from app.fast_path import cache, cache_invalidation
from app.fast_path.cache import ValidatedCache

ORGANIZATIONS = ("orchard0",)
# Two processes of one machine, and one of another.
PROCESSES = (("first", "here"), ("second", "here"), ("third", "there"))
WAITS = (0.5, 1.01, 20.0)


@dataclass(slots=True)
class Transaction:
    """A change whose row is inserted and not committed."""

    process: int
    organization: str
    value: int
    change_id: UUID


@dataclass(slots=True)
class State:
    """What is committed: each organization's value, and the rows of ``view_changes``."""

    values: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ORGANIZATIONS, 0))
    rows: dict[UUID, tuple[str, bool]] = field(default_factory=dict)

    def copy(self) -> State:
        """Return the same state, to be changed."""
        return State(dict(self.values), dict(self.rows))


class World:
    """A database, the machines that use it, and the time."""

    def __init__(self, folder: Path) -> None:
        self.now = 1000.0
        self.states = [State()]
        self.connection = 0
        self.open: list[Transaction] = []
        self.unacknowledged: list[Transaction] = []
        self.values_made = 0
        self.truth = {name: [(0.0, 0)] for name in ORGANIZATIONS}
        self.acknowledged = {(machine, name): 0.0 for _, machine in PROCESSES for name in ORGANIZATIONS}
        self.process = 0
        self.during: tuple[Sequence[Callable[[], None]], ...] = ((), ())
        self.caches: list[ValidatedCache[int]] = [ValidatedCache() for _ in PROCESSES]
        self.configs = [
            SimpleNamespace(database_url=name, instance=folder / machine, disabled_fast_paths=())
            for name, machine in PROCESSES
        ]

    @property
    def state(self) -> State:
        """What is committed now."""
        return self.states[-1]

    def config(self) -> Any:
        """The configuration of the process that acts."""
        return self.configs[self.process]

    def rows(self) -> list[Any]:
        """Answer the query of the follower; other things happen before and after the database reads."""
        self.happen(0)
        identity = f"server {self.connection}"
        rows = [
            SimpleNamespace(identity=identity, organization_id=name, id=change_id, is_for_all=for_all)
            for change_id, (name, for_all) in self.state.rows.items()
        ]
        self.happen(1)
        return rows or [SimpleNamespace(identity=identity, organization_id=None, id=None, is_for_all=None)]

    def read(self, organization: str) -> int:
        """Answer the query of a value; other things happen before and after the database reads."""
        self.happen(0)
        value = self.state.values[organization]
        self.happen(1)
        return value

    def happen(self, place: int) -> None:
        """Do what happens at this place of a query, in other processes."""
        process, during = self.process, self.during
        self.during = ((), ())
        for act in during[place]:
            act()
        self.process, self.during = process, during

    def begin(self, process: int, organization: str) -> None:
        """Insert the row of a change."""
        self.values_made += 1
        change_id = UUID(int=random.getrandbits(128))
        self.open.append(Transaction(process, organization, self.values_made, change_id))

    def commit(self) -> None:
        """Commit the oldest open change; its process may be stopped before it acknowledges it."""
        if self.open:
            change = self.open.pop(random.randrange(len(self.open)))
            state = self.state.copy()
            state.values[change.organization] = change.value
            state.rows[change.change_id] = (change.organization, False)
            self._become(state)
            self.unacknowledged.append(change)

    def write(self, process: int, organization: str) -> None:
        """Change a value without a pause."""
        self.begin(process, organization)
        self.commit()
        self.acknowledge()

    def acknowledge(self) -> None:
        """Do what follows the COMMIT, and answer."""
        for change in self.unacknowledged:
            self.process = change.process
            cache_invalidation._renew(change.organization)
            machine = PROCESSES[change.process][1]
            self.acknowledged[machine, change.organization] = self.now
        self.unacknowledged = []

    def prune(self) -> None:
        """Delete all rows but those of open transactions, together with the insertion of one for all."""
        state = self.state.copy()
        state.rows = {UUID(int=random.getrandbits(128)): ("meadow00", True)}
        self._become(state)

    def fail_over(self, lost: int) -> None:
        """Go on with a server that lacks the last states."""
        self.open, self.unacknowledged = [], []
        self.connection += 1
        self._become(self.states[max(0, len(self.states) - 1 - lost)].copy())
        # What was acknowledged and is lost can no longer be demanded.
        self.acknowledged = dict.fromkeys(self.acknowledged, 0.0)

    def _become(self, state: State) -> None:
        self.states.append(state)
        for name, value in state.values.items():
            if self.truth[name][-1][1] != value:
                self.truth[name].append((self.now, value))

    def accepted(self, organization: str) -> set[int]:
        """The values that the acting process may use: those that were true at some time since then."""
        machine = PROCESSES[self.process][1]
        since = max(self.now - cache_invalidation.TRUSTED_SECONDS, self.acknowledged[machine, organization])
        truth = self.truth[organization]
        ends = [began for began, _ in truth[1:]] + [float("inf")]
        return {value for (_, value), ended in zip(truth, ends, strict=True) if ended >= since}


During = tuple[Sequence[tuple[Any, ...]], Sequence[tuple[Any, ...]]]
PROCESS, ORGANIZATION = st.integers(0, len(PROCESSES) - 1), st.sampled_from(ORGANIZATIONS)
WRITE = st.tuples(st.sampled_from(["begin", "write"]), PROCESS, ORGANIZATION)
POLL = st.tuples(st.just("poll"), PROCESS)
WAIT = st.tuples(st.just("wait"), st.sampled_from(WAITS))
FAIL_OVER = st.tuples(st.just("fail_over"), st.integers(1, 4))
REST = st.tuples(st.sampled_from(["commit", "acknowledge", "prune"]))
EVENTS = st.one_of(WRITE, REST, POLL, WAIT, FAIL_OVER)
CHANGE_ON_THE_WAY_BACK = ((), (("write", 0, ORGANIZATIONS[0]), ("wait", WAITS[1])))
DURING = st.one_of(
    st.just(CHANGE_ON_THE_WAY_BACK),
    st.tuples(st.lists(EVENTS, max_size=2), st.lists(EVENTS, max_size=3)),
)
"""What happens in the time of a query, before and after the database reads."""


class Following(RuleBasedStateMachine):
    """Rules of the world; queries take time, in which other things happen."""

    folder: Path
    patch: pytest.MonkeyPatch

    def __init__(self) -> None:
        super().__init__()
        self.world = world = World(self.folder)
        self.never: set[str] = set()
        cache_invalidation._followers.clear()
        for name, stand_in in {
            "current": world.config,
            "uptime": lambda: world.now,
            "connection_number": lambda: (0, world.connection),
            # The processes of a machine use one database, and hear of what each other asked.
            "_machine_key": lambda _url: b"database",
            "_CHANGES": SimpleNamespace(rows=world.rows),
        }.items():
            self.patch.setattr(cache_invalidation, name, stand_in)
        for world.process in range(len(PROCESSES)):
            # The time begins anew.
            cache_invalidation._machine().write(4096 * 8, bytes(4096))
        self.patch.setattr(cache, "current", world.config)
        self.patch.setattr(cache, "in_transaction", lambda: False)

    def do(self, event: tuple[Any, ...]) -> None:
        name, *arguments = event
        if name in self.never:
            return
        if name == "poll":
            self.world.process = arguments[0]
            cache_invalidation.poll()
        elif name == "wait":
            self.world.now += arguments[0]
        else:
            getattr(self.world, name)(*arguments)

    def prepare(self, during: During) -> None:
        before, after = ([lambda event=event: self.do(event) for event in part] for part in during)
        self.world.during = (before, after)

    @initialize(never=st.sets(st.sampled_from(["fail_over", "prune", "begin"])))
    def leave_out(self, never: set[str]) -> None:
        # After a failover or pruning every cached value is read again, which would hide what else goes wrong.
        self.never = never

    @rule(event=EVENTS)
    def something_happens(self, event: tuple[Any, ...]) -> None:
        self.do(event)

    @rule(process=PROCESS, during=DURING)
    def process_polls(self, process: int, during: During) -> None:
        self.prepare(during)
        self.world.process = process
        cache_invalidation.poll()
        self.prepare(((), ()))

    @rule(process=PROCESS)
    def process_polls_in_vain(self, process: int) -> None:
        def fail() -> None:
            raise ConnectionError

        self.world.process, self.world.during = process, ((fail,), ())
        with pytest.raises(ConnectionError):
            cache_invalidation.poll()
        self.prepare(((), ()))

    @rule(process=PROCESS)
    def process_restarts(self, process: int) -> None:
        self.world.caches[process].clear()
        cache_invalidation._followers.pop(PROCESSES[process][0], None)

    @rule(organization=ORGANIZATION, during=DURING)
    def processes_read_what_they_do_not_know(self, organization: str, during: During) -> None:
        world = self.world
        for process, values in enumerate(world.caches):
            world.process = process
            if values.get(organization) is None:
                self.prepare(during)
                values.load(organization, load=lambda: world.read(organization))
                self.prepare(((), ()))

    @invariant()
    def no_process_uses_an_old_value(self) -> None:
        for process, values in enumerate(self.world.caches):
            self.world.process = process
            for organization in ORGANIZATIONS:
                known = values.get(organization)
                assert known is None or known in self.world.accepted(organization)


@pytest.mark.slow
def test_no_value_is_used_a_second_after_it_was_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Following, "folder", tmp_path, raising=False)
    monkeypatch.setattr(Following, "patch", monkeypatch, raising=False)
    run_state_machine_as_test(
        Following, settings=settings(max_examples=250, stateful_step_count=40, deadline=None)
    )


def test_change_on_the_way_back_of_a_poll_is_not_taken_as_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The age of what a process knows counts from the moment at which it asked."""
    monkeypatch.setattr(Following, "folder", tmp_path, raising=False)
    monkeypatch.setattr(Following, "patch", monkeypatch, raising=False)
    processes, nothing = Following(), ((), ())
    processes.process_polls(2, nothing)
    processes.processes_read_what_they_do_not_know(ORGANIZATIONS[0], nothing)
    processes.process_polls(2, CHANGE_ON_THE_WAY_BACK)
    processes.no_process_uses_an_old_value()


def test_change_that_the_lead_has_seen_is_known_to_the_other_processes_of_its_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that never asks trusts a cached value only until the lead has found a change."""
    monkeypatch.setattr(Following, "folder", tmp_path, raising=False)
    monkeypatch.setattr(Following, "patch", monkeypatch, raising=False)
    processes, nothing = Following(), ((), ())
    processes.process_polls(0, nothing)
    processes.processes_read_what_they_do_not_know(ORGANIZATIONS[0], nothing)
    processes.do(("wait", 1.01))
    processes.process_polls(0, nothing)
    processes.world.process = 1
    assert processes.world.caches[1].get(ORGANIZATIONS[0]) is not None, "it does not hear of the lead"
    processes.do(("write", 2, ORGANIZATIONS[0]))
    processes.do(("wait", 1.01))
    processes.process_polls(0, nothing)
    processes.no_process_uses_an_old_value()


def test_change_before_another_process_took_the_lead_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The successor cannot tell which changes its predecessor has seen."""
    monkeypatch.setattr(Following, "folder", tmp_path, raising=False)
    monkeypatch.setattr(Following, "patch", monkeypatch, raising=False)
    processes, nothing = Following(), ((), ())
    processes.process_polls(0, nothing)
    processes.processes_read_what_they_do_not_know(ORGANIZATIONS[0], nothing)
    processes.do(("write", 2, ORGANIZATIONS[0]))
    processes.do(("wait", 1.01))
    processes.process_polls(1, nothing)
    processes.no_process_uses_an_old_value()
