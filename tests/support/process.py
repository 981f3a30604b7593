"""Child processes that never outlive the test run, and free loopback ports for them."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

# The header in which a live server names the worker process.
WORKER_HEADER = "X-Test-Worker"
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """Let the kernel stop this process when its parent ends."""
    # SIGTERM instead of SIGKILL, so that a server stops its workers too.
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def start(
    command: Sequence[str], log: Path, *, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.Popen[bytes]:
    """Run the command in its own process group; it writes to ``log`` and dies with this process."""
    with log.open("ab") as output:
        return subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(env) if env is not None else None,
            cwd=cwd,
            process_group=0,
            preexec_fn=die_with_parent,
        )


class Process(Protocol):
    """What is needed of a child process to stop it: ``subprocess.Popen`` or what resembles it."""

    pid: int

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def terminate(self) -> None: ...


def stop(process: Process, *, patience: float = 10.0) -> None:
    """Stop the process and its group, with SIGKILL if they ignore SIGTERM."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
    kill_group(process)


def kill_group(process: Process) -> None:
    """Kill every process of the group and reap the first."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(60)


# Until this process ends, so that no other one takes a port for a server that has not begun to listen.
_reservations = contextlib.ExitStack()
atexit.register(_reservations.close)


def free_port(run: int = 1) -> int:
    """Return an unused loopback port outside the ephemeral range, the first of ``run`` unused ones in a row.

    Servers of two test processes on one port would share its requests (SO_REUSEPORT). So a port is returned once, to
    one process: its number is reserved by a UDP socket.
    """
    low = 20000 + (os.getpid() * 7) % 10000
    for port in range(low, low + 2000):
        with contextlib.ExitStack() as taken:
            if all(_is_free(port + number, taken) for number in range(run)):
                _reservations.push(taken.pop_all())
                return port
    raise RuntimeError("no free loopback port")


def _is_free(port: int, taken: contextlib.ExitStack) -> bool:
    reservation = taken.enter_context(socket.socket(type=socket.SOCK_DGRAM))
    with socket.socket() as probe:
        try:
            for each in (reservation, probe):
                each.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def wait_until(
    condition: Callable[[], object], what: str, *, seconds: float = 60.0, pause: float | None = None
) -> None:
    """Wait until the condition holds; fail naming ``what`` after the time limit.

    By default the pauses grow with the time that has passed, so that a question which costs the thing that is waited
    for something, such as a request to a server that starts, is asked some dozen times instead of hundreds of times.
    """
    began = time.monotonic()
    while not condition():
        passed = time.monotonic() - began
        if passed > seconds:
            raise TimeoutError(f"{what}: not within {seconds:g} s")
        time.sleep(min(0.02 + passed / 20, 0.25) if pause is None else pause)
