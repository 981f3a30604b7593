"""``script/test faults moves``: move an organization between two cells while clients use it, and kill the moves.

Two servers with a database and keys of their own; a switch stands for the proxy in front of them. The command that
moves is killed at random times before it may finish. Then the history is checked as after other faults.
"""

from __future__ import annotations

import argparse
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.operations.audit.chain import seal_all_events
from app.operations.audit.chain_verification import verify_audit_log
from tests.factories import Factory
from tests.faults.history import Violation, check_history
from tests.faults.token_family import GRACE_SECONDS
from tests.faults.workload import Workload
from tests.support.applications import environment
from tests.support.galera import NodeDatabase
from tests.support.mariadb import MariaDB
from tests.support.servers import ROOT, LiveServer
from tests.support.switch import Switch

_FLASK = [sys.executable, "-m", "flask", "--app", "wsgi", "organizations"]
_CALM_SECONDS = 2.0


@dataclass
class Result:
    """What was violated, how many requests got no response in the end, and the seconds of each pause."""

    requests: int = 0
    unavailable: int = 0
    kills: int = 0
    unanswered: int = 0
    violations: list[Violation] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


def run(folder: Path, *, moves: int, kills: int, seed: int) -> Result:
    """Move back and forth ``moves`` times, each after ``kills`` attempts that are killed."""
    chance, result = random.Random(seed), Result()
    server = MariaDB(folder / "database").start()
    cells: list[LiveServer] = []
    try:
        for name in ("a", "b"):
            server.create_database(name)
            instance = folder / name
            instance.mkdir(mode=0o700)
            if cells:
                # Without it users would sign in again. The master keys differ.
                shutil.copy2(cells[0].instance / "secret.key", instance)
            cell = LiveServer(NodeDatabase(server, name), instance, folder / f"{name}.log", expected="")
            base_url = cells[0].url if cells else cell.url
            cell.settings |= {"GATEHOUSE_BASE_URL": base_url, "GATEHOUSE_JANITOR": "on"}
            Factory(cell.app).root()
            cell.start(240)
            cells.append(cell)
        edge = Switch(cells[0].port)
        workload = Workload([f"http://127.0.0.1:{edge.port}"], Factory(cells[0].app), seed)
        slug = workload.organization.slug
        with workload:
            time.sleep(_CALM_SECONDS)
            for number in range(moves):
                source, target = cells[number % 2], cells[(number + 1) % 2]
                for _ in range(kills):
                    result.kills += _kill_move(source, target, slug, folder, chance.uniform(2, 14))
                    if _is_moved(source, slug):
                        break
                result.said.append(_move(source, target, slug, folder))
                edge.target = target.port
                time.sleep(_CALM_SECONDS)
        history = list(workload.history)
        result.requests = len(history)
        result.unavailable = sum(operation.status == 503 for operation in history)
        last = cells[moves % 2]
        audited, problems = _audit(last, workload)
        result.unanswered = workload.sweep()
        result.violations = check_history(
            workload.history, audited=audited, chain_problems=problems, grace_seconds=GRACE_SECONDS
        )
        edge.close()
    finally:
        for cell in cells:
            cell.kill()
        server.stop()
    return result


def _command(source: LiveServer, target: LiveServer, slug: str) -> tuple[list[str], dict[str, str]]:
    there = environment(target.database, target.instance, source.settings["GATEHOUSE_BASE_URL"])
    via = ["env", *(f"{name}={value}" for name, value in there.items()), *_FLASK, "receive"]
    here = environment(source.database, source.instance, source.settings["GATEHOUSE_BASE_URL"])
    name = target.instance.name
    # A busy machine may stall for longer than an operator would wait.
    options = ["--max-pause", "300", "--via", shlex.join(via)]
    return [*_FLASK, "move", slug, "--to", name, *options], os.environ | here


def _kill_move(source: LiveServer, target: LiveServer, slug: str, folder: Path, seconds: float) -> bool:
    """Start a move and kill it, with the receiver or without, after so many seconds; return whether it still ran."""
    command, environ = _command(source, target, slug)
    with (folder / "killed.log").open("ab") as log:
        moving = subprocess.Popen(
            command, cwd=ROOT, env=environ, stdout=log, stderr=log, start_new_session=True
        )
        try:
            moving.wait(seconds)
            return False
        except subprocess.TimeoutExpired:
            os.killpg(moving.pid, signal.SIGKILL)
            moving.wait()
            return True


def _move(source: LiveServer, target: LiveServer, slug: str, folder: Path) -> str:
    """Move until it is done: the lease of a killed receiver lasts for a minute."""
    command, environ = _command(source, target, slug)
    for _ in range(60):
        done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
        with (folder / "moves.log").open("a") as log:
            log.write(done.stdout + done.stderr)
        if done.returncode == 0:
            return done.stdout.strip()
        time.sleep(2)
    raise RuntimeError(done.stdout + done.stderr)


def _is_moved(cell: LiveServer, slug: str) -> bool:
    query = "SELECT COUNT(*) FROM organizations WHERE slug = %s AND moved_to IS NOT NULL"
    return cell.database.query(query, slug.encode()) == [(1,)]


def _audit(cell: LiveServer, workload: Workload) -> tuple[set[tuple[str, str]], list[str]]:
    organization, problems = workload.organization, []
    actor = Factory(cell.app).system(organization)
    with cell.app.app_context():
        seal_all_events(actor, organization.id)
        after: int | None = 0
        while after is not None:
            verified = verify_audit_log(actor, after=after)
            problems += [f"{problem.message} {problem.position}" for problem in verified.problems]
            after = verified.next_position
    query = "SELECT action, target_id FROM audit_events WHERE organization_id = %s"
    rows: list[Any] = cell.database.query(query, organization.id.encode())
    return {(action.decode(), target.decode()) for action, target in rows}, problems


def main() -> int:
    """Run the program; return its exit status."""
    parser = argparse.ArgumentParser(prog="script/test faults moves", description=__doc__)
    parser.add_argument("--moves", type=int, default=6)
    parser.add_argument("--kills", type=int, default=3, help="attempts of each move that are killed")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000))
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="gatehouse-moves-"))
    sys.stdout.write(f"seed {options.seed}, files in {folder}\n")
    result = run(folder, moves=options.moves, kills=options.kills, seed=options.seed)
    lines = [*result.said, *(f"{each.rule.name}: {each.text}" for each in result.violations[:20])]
    lines.append(
        f"{result.requests} requests, {result.unavailable} answered with 503, {result.kills} moves killed, "
        f"{result.unanswered} unanswered in the end, {len(result.violations)} violations"
    )
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if result.violations or result.unanswered else 0


if __name__ == "__main__":
    sys.exit(main())
