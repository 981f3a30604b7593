"""The measured servers: the same Granian, workers and threads for each."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support import process
from tests.support.servers import ROOT, granian

GATEHOUSE = "script/lib/serve.py"
"""What script/server starts: Gatehouse is measured as it is served."""


@contextmanager
def serving(
    target: str, env: Mapping[str, str], *, probe: str, workers: int, threads: int, log: Path
) -> Iterator[tuple[int, subprocess.Popen[bytes], float]]:
    """Start a WSGI application, or ``GATEHOUSE``; return (port, process, seconds until its first response)."""
    port = process.free_port()
    began = time.perf_counter()
    command = granian(target, port, workers=workers, threads=threads)
    if target == GATEHOUSE:
        command = [sys.executable, target, "--port", str(port)]
        command += ["--workers", str(workers), "--threads", str(threads)]
    server = process.start(command, log, env=os.environ | env, cwd=ROOT)
    try:
        process.wait_until(lambda: _answers(port, probe), f"{target} (log: {log})", pause=0.005)
        yield port, server, time.perf_counter() - began
    finally:
        process.stop(server)


def resident(pid: int) -> tuple[str, float]:
    """Return the memory of the workers, with and without their main process, as text; and their PSS in megabytes.

    PSS counts shared pages once: the workers share the libraries.
    """
    main, workers = _megabytes([pid]), _megabytes(_children(pid))
    words = (
        f"workers {workers[0]:.0f} MB RSS, {workers[1]:.0f} MB PSS; "
        f"with the main process {workers[0] + main[0]:.0f} MB RSS, {workers[1] + main[1]:.0f} MB PSS"
    )
    return words, workers[1]


def cpu_seconds(pid: int) -> float:
    """Return user and system time of a process and its children, which is comparable on a busy machine."""
    ticks = 0
    for each in (pid, *_children(pid)):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _megabytes(pids: list[int]) -> tuple[float, float]:
    sums = {"Rss:": 0, "Pss:": 0}
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            name = line.split()[0]
            if name in sums:
                sums[name] += int(line.split()[1])
    return sums["Rss:"] / 1024, sums["Pss:"] / 1024


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split()]


def _answers(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status < 500
    except OSError:
        return False
    finally:
        connection.close()
