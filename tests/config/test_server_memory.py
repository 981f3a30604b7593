"""Password hashing does not grow the memory of a worker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.server_script import ROOT

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


def test_memory_of_password_hashes_is_returned(tmp_path: Path) -> None:
    """PW-5, PW-6: 19 MiB for each hash in progress, not for each thread that ever hashed.

    script/lib/serve.sh sets these variables of the C library.
    """
    exported = re.findall(
        r"(MALLOC_\w+)=\"\$\{MALLOC_\w+:-(\d+)\}\"", (ROOT / "script/lib/serve.sh").read_text()
    )
    assert {name for name, _ in exported} == {"MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_"}
    env = {"GATEHOUSE_INSTANCE": str(tmp_path / "instance"), "PATH": os.environ["PATH"]} | dict(exported)
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
