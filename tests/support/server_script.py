"""script/server as users start it: in a copy of the repository's files, with its own settings."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

from tests.support import process

ROOT = Path(__file__).resolve().parents[2]
COPIED = (
    "app",
    "docs/examples",
    "docs/operations",
    "migrations",
    "script",
    "static",
    "templates",
    "pyproject.toml",
    "requirements.txt",
    "wsgi.py",
)


def copy_to(folder: Path) -> Path:
    """Copy the application's files, using the environment of this run instead of installing one."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            # With the compiled modules, which are valid for a copy: to compile all takes longer than to import them.
            shutil.copytree(source, folder / name)
        else:
            shutil.copy2(source, folder / name)
    link_environment(folder)
    return folder


def link_environment(folder: Path) -> None:
    """Let script/server in the folder use the environment of this run instead of installing one."""
    environment = folder / ".venv"
    environment.mkdir()
    for name in ("bin", "lib", "lib64", "include", "pyvenv.cfg"):
        if (Path(sys.prefix) / name).exists():
            (environment / name).symlink_to(Path(sys.prefix) / name)
    pinned = hashlib.sha256((folder / "requirements.txt").read_bytes()).hexdigest()
    (environment / "installed-requirements.txt").write_text(pinned)


def load_script(name: str) -> ModuleType:
    """Import a module of script/lib."""
    spec = importlib.util.spec_from_file_location(f"script_{name}", ROOT / "script" / "lib" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Started:
    """One run of script/server, or of another command that takes its arguments."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        port: int | None = None,
        command: Sequence[str] = ("script/server",),
        **settings: str,
    ) -> None:
        self.port = port or process.free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        demo_port = process.free_port() if "--demo" in arguments else 0
        of_demo = ["--demo-port", str(demo_port)] if demo_port else []
        self.app_url = f"http://127.0.0.1:{demo_port}"
        self._log = folder / f"server-{self.port}.log"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GATEHOUSE_")}
        environment.pop("DATABASE_URL", None)
        self.begun = time.monotonic()
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "--port", str(self.port), *of_demo, *arguments],
                cwd=folder,
                env=environment | settings,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def answers(self) -> float:
        """Return the seconds from the start to the first response."""
        while time.monotonic() < self.begun + 240:
            if self.process.poll() is not None:
                raise AssertionError(f"it ended with {self.process.returncode}:\n{self.output()}")
            try:
                self.get("/readyz")
                return time.monotonic() - self.begun
            except urllib.error.HTTPError as error:
                error.close()
            except (urllib.error.URLError, ConnectionError):
                pass
            time.sleep(0.02)
        raise AssertionError(self.output())

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=30) as answer:
            body: bytes = answer.read()
        return body.decode()

    def workers(self) -> set[int]:
        pid = self.process.pid
        return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}

    def output(self) -> str:
        return self._log.read_text()

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)


@contextlib.contextmanager
def started(
    folder: Path,
    *arguments: str,
    port: int | None = None,
    command: Sequence[str] = ("script/server",),
    **settings: str,
) -> Iterator[Started]:
    server = Started(folder, *arguments, port=port, command=command, **settings)
    try:
        yield server
    finally:
        # Its workers outlive a main process that is killed.
        process.kill_group(server.process)
