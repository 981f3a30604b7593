"""Other processes of this machine that follow the changes of cached values, as serving processes do."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping

from tests.support import process
from tests.support.servers import ROOT

# Forks a process for each byte that it reads. Each follows as the thread of a serving process does, and prints its id
# when it begins and for each query of the changes.
FOLLOWING = """
import os, signal, sys, time
from app import create_app
from app.fast_path import cache_invalidation

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while os.read(0, 1):
    if os.fork() == 0:
        break
else:
    sys.exit()
app, rows = create_app(), cache_invalidation._CHANGES.rows

def counted():
    os.write(1, b"%d\\n" % os.getpid())
    return rows()

cache_invalidation._CHANGES.rows = counted
os.write(1, b"%d\\n" % os.getpid())
with app.app_context():
    while True:
        cache_invalidation._follower_of(app.config["GATEHOUSE"].database_url).used_at = cache_invalidation.uptime()
        cache_invalidation.follow()
        time.sleep(0.05)
"""


class Others:
    """Processes of this machine that follow the changes; ``asked`` counts the lines of each."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        command = [sys.executable, "-c", FOLLOWING]
        self._parent = subprocess.Popen(
            command,
            env=environment,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,
            preexec_fn=process.die_with_parent,
        )
        self.asked: Counter[int] = Counter()
        self._reading = threading.Thread(target=self._count)
        self._reading.start()

    def _count(self) -> None:
        assert self._parent.stdout is not None
        for line in self._parent.stdout:
            self.asked[int(line)] += 1

    def start(self) -> int:
        """Start one and return its id once it follows."""
        before = set(self.asked)
        assert self._parent.stdin is not None
        self._parent.stdin.write(b"1")
        self._parent.stdin.flush()
        process.wait_until(lambda: self.asked.keys() - before, "a process")
        [pid] = self.asked.keys() - before
        return pid

    def wait_for(self, pid: int) -> None:
        """Wait until the process has asked again."""
        before = self.asked[pid]
        process.wait_until(lambda: self.asked[pid] > before, "a query of the changes")

    def find_lead(self, *pids: int) -> int:
        """Wait until one of the processes asks three times while the others never do, and return it.

        On a busy machine another one may ask because the lead was late, and then leads.
        """
        asking: list[int] = []

        def is_one() -> bool:
            before = self.asked.copy()
            process.wait_until(
                lambda: max(self.asked[pid] - before[pid] for pid in pids) >= 3, "queries of the changes"
            )
            asking[:] = [pid for pid in pids if self.asked[pid] > before[pid]]
            return len(asking) == 1

        process.wait_until(is_one, "one process of the machine that asks alone")
        return asking[0]

    def end(self) -> None:
        """Kill them."""
        process.kill_group(self._parent)
        self._reading.join(60)
        assert self._parent.stdin is not None and self._parent.stdout is not None
        self._parent.stdin.close()
        self._parent.stdout.close()
