"""Other processes of this machine that follow the changes of cached values, as serving processes do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress

from tests.support.process import wait_until
from tests.support.servers import ROOT

# Forks a process for each byte that it reads, and prints its id. Each follows as the thread of a serving process does,
# and prints its id for each query of the changes.
FOLLOWING = """
import os, signal, sys, time
from app import create_app
from app.fast_path import cache_invalidation

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while os.read(0, 1):
    if (pid := os.fork()) == 0:
        break
    os.write(1, b"%d\\n" % pid)
else:
    sys.exit()
app, rows = create_app(), cache_invalidation._CHANGES.rows

def counted():
    os.write(1, b"%d\\n" % os.getpid())
    return rows()

cache_invalidation._CHANGES.rows = counted
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
            command, env=environment, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.asked: Counter[int] = Counter()
        self._reading = threading.Thread(target=self._count)
        self._reading.start()

    def _count(self) -> None:
        assert self._parent.stdout is not None
        for line in self._parent.stdout:
            self.asked[int(line)] += 1

    def start(self) -> int:
        """Start one and return its id once it is counted."""
        before = set(self.asked)
        assert self._parent.stdin is not None
        self._parent.stdin.write(b"1")
        self._parent.stdin.flush()
        wait_until(lambda: self.asked.keys() - before, "a process")
        [pid] = self.asked.keys() - before
        return pid

    def wait_for(self, pid: int) -> None:
        """Wait until the process has asked again."""
        before = self.asked[pid]
        wait_until(lambda: self.asked[pid] > before, "a query of the changes")

    def end(self) -> None:
        """Kill them."""
        for pid in self.asked:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert self._parent.stdin is not None and self._parent.stdout is not None
        self._parent.stdin.close()
        self._parent.wait(60)
        self._reading.join(60)
        self._parent.stdout.close()
