"""The faults: each is a context manager that names what it does to what, and repairs it at the end."""

from __future__ import annotations

import contextlib
import http.client
import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.faults.balanced import BalancedTopology
from tests.faults.topology import Machine, Topology, is_cluster_node
from tests.support import process
from tests.support.concurrent_requests import Post, send
from tests.support.group_replication import GroupNode
from tests.support.mariadb import MariaDB
from tests.support.servers import ROOT

Fault = Callable[[Topology, random.Random], AbstractContextManager[str]]
CLOCK_STEP_SECONDS = 60
# Enough for a machine that runs other tests, too.
START_SECONDS = 240


@dataclass(frozen=True, slots=True)
class Injected:
    """A fault that was injected. Times are monotonic seconds; ``healed`` is when its repair was complete."""

    name: str
    target: str
    began: float
    healed: float


def inject(name: str, topology: Topology, chance: random.Random, seconds: float) -> Injected:
    """Inject the fault, wait, repair it, and wait until every machine is ready again.

    Raises RuntimeError or OSError with the reason if one does not become ready.
    """
    began = time.monotonic()
    with FAULTS[name](topology, chance) as target:
        time.sleep(seconds)
    healed = time.monotonic()
    for restarted, at in repair(topology):
        target, healed = f"{target}, {restarted} restarted", at
    return Injected(name, target, began, healed)


@contextlib.contextmanager
def _killed_server(topology: Topology, chance: random.Random) -> Iterator[str]:
    """Kill the main process alone; its workers are killed later, when the service is started again."""
    machine = chance.choice(topology.machines)
    os.kill(machine.server.pid, signal.SIGKILL)
    yield str(machine)
    machine.server.kill()
    machine.server.start(START_SECONDS)


@contextlib.contextmanager
def _killed_worker(topology: Topology, chance: random.Random) -> Iterator[str]:
    machine = chance.choice(topology.machines)
    os.kill(chance.choice(machine.server.worker_pids()), signal.SIGKILL)
    yield str(machine)


def _any_database(topology: Topology, chance: random.Random) -> MariaDB:
    """Return a database server, of a group the primary every other time."""
    databases = topology.databases
    primaries = [node for node in databases if isinstance(node, GroupNode) and node.primary() == node.port]
    return chance.choice(primaries if primaries and chance.random() < 0.5 else databases)


@contextlib.contextmanager
def _killed_database(topology: Topology, chance: random.Random) -> Iterator[str]:
    database = _any_database(topology, chance)
    database.kill()
    yield _name(topology, database)
    database.start(START_SECONDS)


@contextlib.contextmanager
def _paused_server(topology: Topology, chance: random.Random) -> Iterator[str]:
    machine = chance.choice(topology.machines)
    machine.server.pause(True)
    yield str(machine)
    machine.server.pause(False)


@contextlib.contextmanager
def _paused_worker(topology: Topology, chance: random.Random) -> Iterator[str]:
    machine = chance.choice(topology.machines)
    pid = chance.choice(machine.server.worker_pids())
    os.kill(pid, signal.SIGSTOP)
    yield str(machine)
    os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def _paused_database(topology: Topology, chance: random.Random) -> Iterator[str]:
    database = _any_database(topology, chance)
    database.pause(True)
    yield _name(topology, database)
    database.pause(False)


@contextlib.contextmanager
def _partition(topology: Topology, chance: random.Random) -> Iterator[str]:
    """Separate a node from the other nodes, or a machine from its database. Clients still reach the machine."""
    number = chance.randrange(len(topology.machines))
    if topology.cables:
        topology.cables[number].pull()
        yield f"machine {number}"
        topology.cables[number].plug()
    else:
        node, option = (
            topology.machines[number].database,
            "SET GLOBAL wsrep_provider_options = 'gmcast.isolate={}'",
        )
        node.execute(option.format(1))
        yield f"machine {number}"
        node.execute(option.format(0))
    _wait_if_it_stays(topology.machines[number].database)


@contextlib.contextmanager
def _stepped_clock(topology: Topology, chance: random.Random) -> Iterator[str]:
    """Set the clock of one machine forwards or back, and back again."""
    machine, seconds = chance.choice(topology.machines), chance.choice([-1, 1]) * CLOCK_STEP_SECONDS
    machine.clock.set(seconds)
    yield f"{machine}, {seconds:+} s"
    machine.clock.set(0)


@contextlib.contextmanager
def _full_database_disk(topology: Topology, chance: random.Random) -> Iterator[str]:
    database = chance.choice(topology.databases)
    with _filled(topology.database_disk(database)):
        yield _name(topology, database)
    _wait_if_it_stays(database)


@contextlib.contextmanager
def _full_instance_disk(topology: Topology, chance: random.Random) -> Iterator[str]:
    machine = chance.choice(topology.machines)
    with _filled(machine.server.instance):
        yield str(machine)


@contextlib.contextmanager
def _restarted_servers(topology: Topology, _chance: random.Random) -> Iterator[str]:
    """Restart one machine after the other."""
    for machine in topology.machines:
        _restart(topology, machine)
    yield "every machine"


@contextlib.contextmanager
def _restarted_databases(topology: Topology, _chance: random.Random) -> Iterator[str]:
    """Restart one database server after the other."""
    for database in topology.databases:
        database.shut_down()
        database.start(START_SECONDS)
    yield "every database server"


@contextlib.contextmanager
def _switched_primary(topology: Topology, chance: random.Random) -> Iterator[str]:
    """Make another member of the group the primary, as an operator does before maintenance."""
    node = chance.choice([database for database in topology.databases if isinstance(database, GroupNode)])
    node.lead()
    yield _name(topology, node)


@contextlib.contextmanager
def _upgraded(topology: Topology, _chance: random.Random) -> Iterator[str]:
    """Migrate the database, then restart one machine after the other with this release."""
    topology.upgrade()
    for machine in topology.machines:
        machine.server.root = ROOT
        _restart(topology, machine)
    yield "every machine"


@contextlib.contextmanager
def _added_server(topology: Topology, _chance: random.Random) -> Iterator[str]:
    """Start one more machine and tell the load balancer of it."""
    assert isinstance(topology, BalancedTopology)
    yield str(topology.add_machine())


@contextlib.contextmanager
def _failed_over(topology: Topology, _chance: random.Random) -> Iterator[str]:
    """Kill the database server that is written, and start it again later."""
    assert isinstance(topology, BalancedTopology)
    database = topology.written_database()
    database.kill()
    yield _name(topology, database)
    database.start(START_SECONDS)


FAULTS: Mapping[str, Fault] = {
    "kill-server": _killed_server,
    "kill-worker": _killed_worker,
    "kill-database": _killed_database,
    "pause-server": _paused_server,
    "pause-worker": _paused_worker,
    "pause-database": _paused_database,
    "partition": _partition,
    "step-clock": _stepped_clock,
    "fill-database-disk": _full_database_disk,
    "fill-instance-disk": _full_instance_disk,
    "restart-servers": _restarted_servers,
    "restart-databases": _restarted_databases,
    "switch-primary": _switched_primary,
    "upgrade": _upgraded,
    "add-node": _added_server,
    "fail-over": _failed_over,
}
# What happens, in this order, behind a load balancer, where clients notice nothing of what is planned.
EVENTS = ("kill-server", "add-node", "upgrade", "fail-over")
PLANNED = {"add-node", "upgrade"}


def possible_faults(topology: Topology) -> list[str]:
    """Return the faults that this topology allows, without the upgrade, which happens once."""
    impossible = {"upgrade", "add-node", "fail-over"}
    if not topology.is_isolated:
        impossible |= {"fill-database-disk", "fill-instance-disk"}
    if not topology.cables and topology.kind != "galera":
        impossible.add("partition")
    if topology.kind == "group-replication":
        impossible.add("fill-database-disk")
    else:
        impossible.add("switch-primary")
    return [name for name in FAULTS if name not in impossible]


@contextlib.contextmanager
def _filled(disk: Path) -> Iterator[None]:
    """Use up the free space of the disk."""
    filler = disk / "filler"
    with filler.open("wb") as file:
        # In smaller and smaller steps, because others write at the same time.
        size = 0
        for step in (1 << 20, 1 << 12):
            with contextlib.suppress(OSError):
                while True:
                    os.posix_fallocate(file.fileno(), size, step)
                    size += step
    try:
        yield
    finally:
        filler.unlink()


def _restart(topology: Topology, machine: Machine) -> None:
    machine.server.stop()
    machine.server.start(START_SECONDS)
    topology.wait_until_used(machine)


def _name(topology: Topology, database: MariaDB) -> str:
    if not is_cluster_node(database):
        return "the database"
    return f"node {topology.databases.index(database)}"


def repair(topology: Topology) -> list[tuple[str, float]]:
    """Wait until every machine is ready; do what docs/deployment.md asks of an operator until then.

    That is to restart a database server that has ended or left its cluster. Return each with the monotonic seconds when
    it was back. Raises RuntimeError or OSError with what a machine says that does not become ready.
    """
    restarted: dict[str, float] = {}

    def is_ready(machine: Machine) -> bool:
        for database in topology.databases:
            if not database.has_left():
                continue
            if (name := _name(topology, database)) in restarted:
                raise RuntimeError(f"{name} left again after its restart; its log is in {database.folder}")
            database.shut_down()
            database.start(START_SECONDS)
            restarted[name] = time.monotonic()
        return not _why_not_ready(machine)

    for machine in topology.machines:
        try:
            process.wait_until(partial(is_ready, machine), f"{machine} is ready", seconds=START_SECONDS)
        except TimeoutError as error:
            raise RuntimeError(f"{error}: {_why_not_ready(machine)}") from error
    return list(restarted.items())


def _why_not_ready(machine: Machine) -> str:
    """Return why the machine cannot serve every request, or an empty string if it can."""
    workers = len(machine.server.worker_pids())
    if workers < machine.server.workers:
        return f"{workers} of {machine.server.workers} workers"
    try:
        reply = send(machine.server.url, Post("/readyz", None, {}, method="GET"))
    except (http.client.HTTPException, OSError) as error:
        return f"no response: {error!r}"
    return "" if reply.status == 200 else f"/readyz: {reply.body.decode(errors='replace')}"


def _wait_if_it_stays(database: MariaDB) -> None:
    """Wait until the database server serves again, unless it has left, so that it must be restarted."""
    process.wait_until(
        lambda: database.has_left() or database.is_serving(), "the database server", seconds=START_SECONDS
    )
