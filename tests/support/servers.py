"""A real server: Granian with two workers on a free loopback port, in separate processes."""

from __future__ import annotations

import os
import re
import signal
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from flask import Flask

from app.config import Config
from tests.support import preloaded, process
from tests.support.applications import application, environment
from tests.support.databases import MariaDBDatabase

ROOT = Path(__file__).resolve().parents[2]
WORKERS = 2
THREADS = 8
# What a server process runs that cannot be forked: it may have the code of another release.
_PROGRAM = (
    "-c",
    """
import app
from app.fast_path.preload import load_libraries
from granian.cli import entrypoint

load_libraries()
entrypoint()
""",
)
# A log line of the service at warning level or above, or a Python traceback.
_TROUBLE = re.compile(r'\{.*"level": ?"(warning|error|critical)"|Traceback|\S+Warning: ')


def granian(
    target: str,
    port: int,
    *,
    workers: int = WORKERS,
    threads: int = THREADS,
    program: Sequence[str] = ("-m", "granian"),
) -> list[str]:
    """Return the command of a WSGI server with the same workers and threads for every comparison."""
    command = [sys.executable, *program, "--interface", "wsgi", "--host", "127.0.0.1"]
    command += ["--http", "1", "--no-ws", "--port", str(port), "--respawn-failed-workers"]
    return [
        *command,
        "--workers",
        str(workers),
        "--blocking-threads",
        str(threads + Config.LATE_THREADS),
        target,
    ]


class LiveServer:
    """Two workers on MariaDB; ``app`` is the same instance in this process, for factories and assertions.

    ``settings`` are added to the usual ones. With ``certificate``, a file with key, certificate and
    authority, it uses https. ``host`` is its name in the base URL, because passkeys need a host name.
    ``expected`` is a pattern of warnings that its log may contain; ``stop`` fails at any other. ``prefix`` is a command
    that executes the server's. ``root`` is the repository whose code it runs. With ``is_script`` it runs
    script/server, as operators do, instead of Granian with the application of the tests.
    """

    def __init__(
        self,
        database: MariaDBDatabase,
        instance: Path,
        log: Path,
        *,
        workers: int = WORKERS,
        settings: Mapping[str, str] | None = None,
        certificate: tuple[Path, Path] | None = None,
        host: str = "127.0.0.1",
        expected: str | None = None,
        prefix: Sequence[str] = (),
        root: Path = ROOT,
        is_script: bool = False,
    ) -> None:
        self.root, self._is_script = root, is_script
        self.database, self.instance, self.log, self.workers = database, instance, log, workers
        self.settings = dict(settings or {})
        self.expected = expected
        self._prefix = prefix
        self.port = process.free_port()
        self._certificate = certificate
        self.url = f"{'http' if certificate is None else 'https'}://{host}:{self.port}"
        if not is_script:
            # Migrated now; script/server does that itself.
            assert self.app
        self._process: process.Process | None = None

    @cached_property
    def app(self) -> Flask:
        """The same instance in this process, on a database that this migrates."""
        return application(self.database, self.instance, self.url)

    def start(self, seconds: float = 240) -> None:
        """Start the server and wait for so many seconds until it answers; one that ends fails at once."""
        env = (
            os.environ
            | environment(self.database, self.instance, self.url)
            | {"GATEHOUSE_LOG_LEVEL": "debug"}
            | self.settings
        )
        command = granian("tests.support.live:app", self.port, workers=self.workers, program=_PROGRAM)
        if self._is_script:
            command = ["script/server", "--port", str(self.port), "--workers", str(self.workers)]
        if self._certificate is not None:
            own = str(self._certificate[0])
            command += ["--ssl-certificate", own, "--ssl-keyfile", own]
        if self._is_script or self._prefix or self.root != ROOT or "LD_PRELOAD" in env:
            self._process = process.start([*self._prefix, *command], self.log, env=env, cwd=self.root)
        else:
            self._process = preloaded.start_granian(command[1 + len(_PROGRAM) :], self.log, env=env)
        process.wait_until(self._answers, f"the server (log: {self.log})", seconds=seconds)

    def stop(self) -> None:
        """Stop the server; fail if its log has warnings that were not ``expected``."""
        if self._process is not None:
            process.stop(self._process, patience=60)
            troubles = self.troubles()
            assert not troubles, "\n".join(["the server's log tells of trouble:", *troubles])

    def kill(self) -> None:
        """Kill all processes of the server at once, as a power failure would; nothing if it was not started."""
        if self._process is not None:
            process.kill_group(self._process)

    def pause(self, paused: bool) -> None:
        """Suspend or resume the main process and the workers."""
        os.killpg(self.pid, signal.SIGSTOP if paused else signal.SIGCONT)

    def troubles(self) -> list[str]:
        """Return the warnings in the log that were not ``expected``.

        Background work that was put off because the machine is overloaded is none.
        """
        return [
            line
            for line in self.logs().splitlines()
            if _TROUBLE.match(line)
            and not line.endswith(': Unavailable"}')
            and not (self.expected is not None and re.search(self.expected, line))
        ]

    @property
    def is_running(self) -> bool:
        """Whether the server was started and its main process has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Return the process id of the main process."""
        assert self._process is not None
        return self._process.pid

    def worker_pids(self) -> list[int]:
        """Return the process ids of the workers."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [int(pid) for pid in children if b"resource_tracker" not in _command_line(pid)]

    @property
    def _trust(self) -> ssl.SSLContext | None:
        if self._certificate is None:
            return None
        return ssl.create_default_context(cafile=self._certificate[1])

    def logs(self) -> str:
        """Return the server's output so far, or nothing after its folder was deleted at the end of a run."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"the server did not start:\n{self.logs()[-3000:]}")
        try:
            with urllib.request.urlopen(f"{self.url}/healthz", timeout=10, context=self._trust) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False


def _command_line(pid: str) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()
