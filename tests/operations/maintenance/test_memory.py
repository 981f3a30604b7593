"""Memory of password hashes is released, and threads share one arena."""

from __future__ import annotations

import subprocess
import sys

from tests.support.servers import ROOT

_PROGRAM = """
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from app import create_app
from app.rules.sign_in.passwords import hash_password

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 // 2**20

create_app()
before = resident()
at_a_time = threading.BoundedSemaphore(2)

def hash_one(number):
    with at_a_time:
        hash_password("seven tall herons by the weir")

with ThreadPoolExecutor(8) as threads:
    list(threads.map(hash_one, range(32)))
    print(resident() - before)
"""


def test_memory_is_released_after_hashing_in_eight_threads(tmp_path) -> None:
    """PW-5, PW-6: 19 MiB for each running hash, not for each thread that ever hashed."""
    env = {"GATEHOUSE_INSTANCE": str(tmp_path / "instance"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert int(done.stdout.split()[-1]) < 30


# glibc reserves 64 MiB of addresses for each further arena. 100 kB are too much for Python's own allocator.
_ARENAS = """
import runpy, threading
from pathlib import Path

def reserved():
    return int(Path("/proc/self/statm").read_text().split()[0]) * 4096 // 2**20

runpy.run_path("app/operations/maintenance/memory.py")["use_single_arena"]()
threading.stack_size(1 << 18)
before, together = reserved(), threading.Barrier(9)

def work():
    kept = [bytearray(100_000) for _ in range(5)]
    together.wait(20)
    together.wait(20)

for _ in range(8):
    threading.Thread(target=work, daemon=True).start()
together.wait(20)
print(reserved() - before)
together.wait(20)
"""


def test_threads_share_one_arena() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _ARENAS], cwd=ROOT, capture_output=True, check=True, timeout=60
    )
    assert int(done.stdout) < 64
