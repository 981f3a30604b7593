"""``python -m tests.faults``: serve many clients, inject faults, and check the history of what clients were told.

It starts everything itself: two machines with one MariaDB or MySQL, three machines with a Galera node each, or three
machines that use the primary of a MySQL replication group of three. With ``--balancer haproxy`` clients reach the
machines, and these the nodes of a cluster, by HAProxy with the files of docs/operations/files, and the faults are a
killed machine, an added one, a rolling upgrade and a failover of the database. In
network namespaces of its own (which need root, or a kernel that gives them to users) it can also pull cables and fill
disks. Exit status 0: nothing acknowledged was lost, nothing ended was revived, no response was a 500.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

from tests.faults.balanced import BalancedTopology
from tests.faults.expired_tokens import ExpiredTokens
from tests.faults.history import check_history
from tests.faults.injection import EVENTS, FAULTS, Injected, inject, possible_faults, repair
from tests.faults.report import Result, describe, write
from tests.faults.token_family import GRACE_SECONDS
from tests.faults.topology import Topology, check_out
from tests.faults.workload import Workload
from tests.support.network import enter_namespaces

_MACHINES = {"mariadb": 2, "mysql": 2, "galera": 3, "group-replication": 3}
_ON_MYSQL = {"mysql", "group-replication"}
# How long clients work before the first fault, between two faults, and after the last.
_CALM_SECONDS = 3.0
# A shorter run ends before a janitor works.
_JANITOR_MINUTES = 1.0


def main() -> int:
    """Run the program; return its exit status."""
    options = _parse()
    is_isolated = not options.balancer and enter_namespaces("tests.faults")
    seed = random.SystemRandom().randrange(10_000) if options.seed is None else options.seed
    folder = Path(tempfile.mkdtemp(prefix="gatehouse-faults-"))
    release = check_out(options.upgrade_from, folder / "release") if options.upgrade_from else None
    _say(f"{options.database}, {options.minutes:g} minutes, seed {seed}, files in {folder}")
    kind = BalancedTopology if options.balancer else Topology
    machines = options.nodes or _MACHINES[options.database]
    topology = kind(options.database, folder, machines=machines, is_isolated=is_isolated, release=release)
    if options.keep:
        return _keep(topology)
    try:
        # With the schema of this release: the factories write rows that an older one may not have.
        workload = Workload(topology.urls, topology.make, seed, options.slowness)
        expired = ExpiredTokens(topology.make) if options.minutes >= _JANITOR_MINUTES else None
        topology.serve()
        possible = [*EVENTS] if options.balancer else possible_faults(topology)
        chosen = options.faults.split(",") if options.faults else possible
        left_out = sorted(set(chosen) - set(possible))
        if left_out:
            _say(f"Left out, because they are impossible here: {', '.join(left_out)}. Run it as root.")
        result = _run(
            topology,
            workload,
            expired,
            [name for name in chosen if name in possible],
            options,
            seed,
            upgrades=release is not None,
        )
    finally:
        topology.stop()
    _say(f"{topology.kind} {topology.version}\n{describe(result)}")
    write(result, folder / "history.txt")
    if result.is_good:
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if result.is_good else 1


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--database", choices=sorted(_MACHINES), default="mariadb")
    parser.add_argument("--minutes", type=float, default=5, help="how long faults are injected")
    parser.add_argument(
        "--faults", default="", help=f"comma-separated, by default all of: {', '.join(FAULTS)}"
    )
    parser.add_argument(
        "--slowness",
        type=float,
        default=1,
        help="multiply the pauses of clients, to leave other programs time",
    )
    parser.add_argument("--seed", type=int, help="repeat the schedule of another run")
    parser.add_argument(
        "--upgrade-from", help="the revision that serves at first; the upgrade is the first fault"
    )
    parser.add_argument("--balancer", choices=["haproxy"], help="what clients and machines connect to")
    parser.add_argument("--nodes", type=int, help="how many machines serve at first, with --balancer")
    parser.add_argument("--keep", action="store_true", help="only start everything, and wait for Ctrl+C")
    options = parser.parse_args()
    if options.nodes and not options.balancer:
        parser.error("--nodes needs --balancer haproxy")
    if (options.database in _ON_MYSQL) != bool(os.environ.get("GATEHOUSE_TEST_MYSQL")):
        parser.error(
            "GATEHOUSE_TEST_MYSQL names the folder of MySQL's programs, for --database mysql or group-replication"
        )
    if unknown := set(filter(None, options.faults.split(","))) - set(FAULTS):
        parser.error(f"unknown faults: {', '.join(sorted(unknown))}")
    return options


def _run(
    topology: Topology,
    workload: Workload,
    expired: ExpiredTokens | None,
    names: list[str],
    options: argparse.Namespace,
    seed: int,
    *,
    upgrades: bool,
) -> Result:
    chance = random.Random(seed)
    faults: list[Injected] = []
    trouble = ""
    with workload:
        time.sleep(_CALM_SECONDS)
        deadline = time.monotonic() + options.minutes * 60
        schedule = ["upgrade"] if upgrades and not topology.is_balanced else []
        while time.monotonic() < deadline or (topology.is_balanced and len(faults) < len(names)):
            if topology.is_balanced:
                # Each once, with as much time before and after each.
                time.sleep(max(0.0, deadline - time.monotonic()) / (len(names) - len(faults) + 1))
                schedule = names[len(faults) :]
                if not schedule:
                    break
            elif not schedule:
                schedule = chance.sample(names, len(names))
            name = schedule.pop(0)
            try:
                if expired is not None:
                    expired.fill()
                    if topology.is_balanced:
                        # There are few faults, so that each has to meet a janitor that works.
                        expired.wait_until_deleting()
                fault = inject(name, topology, chance, chance.uniform(1, 8))
            except (OSError, RuntimeError) as error:
                # What clients were told until then is still worth checking.
                trouble = f"{name} could not be injected or repaired: {error}"
                break
            faults.append(fault)
            _say(f"{fault.healed - fault.began:5.1f} s  {fault.name}: {fault.target}")
            time.sleep(chance.uniform(1, _CALM_SECONDS))
        time.sleep(_CALM_SECONDS)
    history = list(workload.history)
    audited, problems, purge_problems, deleted = None, [], [], 0
    try:
        if not trouble:
            for restarted, _ in repair(topology):
                _say(f"{restarted} restarted after the last fault")
            audited, problems = topology.audit(workload.organization)
            if expired is not None:
                purge_problems, deleted = expired.find_problems(), expired.deleted
    except (OSError, RuntimeError) as error:
        trouble = f"not ready after the last fault: {error}"
    unanswered = workload.sweep()
    violations = check_history(
        workload.history,
        audited=audited,
        chain_problems=problems,
        purge_problems=purge_problems,
        grace_seconds=GRACE_SECONDS,
        is_balanced=topology.is_balanced,
    )
    swept = workload.history[len(history) :]
    return Result(history, swept, faults, violations, unanswered, deleted, trouble, topology.is_balanced)


def _keep(topology: Topology) -> int:
    """Print where everything is, and keep it until somebody presses Ctrl+C."""
    try:
        topology.serve()
        _say("\n".join([*topology.describe(), "Press Ctrl+C to stop everything and delete it."]))
        threading.Event().wait()
    except KeyboardInterrupt:
        pass
    finally:
        topology.stop()
        shutil.rmtree(topology.folder, ignore_errors=True)
    return 0


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
