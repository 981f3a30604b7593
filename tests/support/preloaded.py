"""A process that has imported the application and forks servers, so that each of them starts without the imports.

They take most of the processor time of a start. The process has created no application and has no threads.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from flask import Flask

from tests.support import process
from tests.support.template_cache import template_cache

_ROOT = Path(__file__).resolve().parents[2]


class ForkedProcess:
    """A process that this one did not start itself, with the methods of ``subprocess.Popen`` that tests use."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._handle: int | None = None
        with contextlib.suppress(ProcessLookupError):
            self._handle = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """Return None while the process runs, and 0 afterwards: its status is unknown."""
        return None if not self._has_ended(0) else 0

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the process has ended. Raises subprocess.TimeoutExpired after so many seconds."""
        if not self._has_ended(timeout):
            raise subprocess.TimeoutExpired("a preloaded process", timeout or 0)
        return 0

    def terminate(self) -> None:
        """Ask the process to end."""
        if self._handle is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGTERM)

    def _has_ended(self, timeout: float | None) -> bool:
        if self._handle is None:
            return True
        poll = select.poll()
        poll.register(self._handle, select.POLLIN)
        if not poll.poll(None if timeout is None else timeout * 1000):
            return False
        os.close(self._handle)
        self._handle = None
        return True


class _Parent:
    """The process that forks, as this one sees it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.preloaded"],
                stdin=theirs,
                cwd=_ROOT,
                process_group=0,
                preexec_fn=process.die_with_parent,
            )
        atexit.register(self._end)

    def fork(self, arguments: Sequence[str], log: Path, env: Mapping[str, str]) -> ForkedProcess:
        with self._lock:
            self._socket.sendall(json.dumps([list(arguments), str(log), dict(env)]).encode() + b"\n")
            told = self._socket.recv(20)
        if not told:
            raise RuntimeError("the process that forks servers has ended")
        return ForkedProcess(int(told))

    def _end(self) -> None:
        self._socket.close()
        self._process.wait(60)


@functools.cache
def _parent() -> _Parent:
    return _Parent()


def start_granian(arguments: Sequence[str], log: Path, *, env: Mapping[str, str]) -> ForkedProcess:
    """Run Granian with the arguments in its own process group; it writes to ``log`` and dies with this process."""
    return _parent().fork(arguments, log, env)


def _reap(*_: object) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _serve(requests: socket.socket) -> list[str]:
    """Fork a process for each request; in the new one, return its arguments."""
    signal.signal(signal.SIGCHLD, _reap)
    lines = requests.makefile("rb")
    for line in lines:
        arguments, log, env = json.loads(line)
        if pid := os.fork():
            # By both, so that it has its group before anybody signals it.
            with contextlib.suppress(PermissionError, ProcessLookupError):
                os.setpgid(pid, pid)
            requests.sendall(str(pid).encode())
            continue
        os.setpgid(0, 0)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        process.die_with_parent()
        output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for number, descriptor in enumerate((nothing, output, output)):
            os.dup2(descriptor, number)
        for descriptor in (output, nothing, requests.detach()):
            os.close(descriptor)
        os.environ.clear()
        os.environ.update(env)
        return [str(each) for each in arguments]
    sys.exit()


def main() -> None:
    """Fork a server for each request on the socket that is the standard input."""
    from granian.cli import entrypoint

    import app  # noqa: F401
    from app.fast_path.preload import load_libraries

    load_libraries()
    Flask.jinja_options = {"bytecode_cache": template_cache()}
    sys.argv[1:] = _serve(socket.socket(fileno=os.dup(0)))
    entrypoint()


if __name__ == "__main__":
    main()
