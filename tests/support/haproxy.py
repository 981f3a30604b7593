"""A real HAProxy with a configuration file of docs/operations/files, in which only names and addresses are replaced."""

from __future__ import annotations

import contextlib
import csv
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.support import process

FILES = Path(__file__).resolve().parents[2] / "docs" / "operations" / "files"


def gatehouse_names(port: int, plain_port: int, nodes: Sequence[int], host: str) -> dict[str, str]:
    """Return what replaces the names of haproxy-gatehouse.cfg: nodes by their ports, and HTTP instead of TLS."""

    def lines(addresses: Iterable[str], more: str = "") -> str:
        return "".join(
            f"    server node{number} {address}{more.format(number)}\n"
            for number, address in enumerate(addresses, 1)
        )

    of_file, tracked = ("10.0.0.21:8000", "10.0.0.22:8000"), " track gatehouse/node{}"
    used = [f"127.0.0.1:{node}" for node in nodes]
    return {
        "bind :443 ssl crt /etc/haproxy/id.example.com.pem alpn h2,http/1.1": f"bind 127.0.0.1:{port}",
        "    bind :::443 v6only ssl crt /etc/haproxy/id.example.com.pem alpn h2,http/1.1\n": "",
        "bind :80": f"bind 127.0.0.1:{plain_port}",
        "    bind :::80 v6only\n": "",
        "hdr Host id.example.com": f"hdr Host {host}",
        lines(of_file, tracked): lines(used, tracked),
        lines(of_file): lines(used),
    }


class HAProxy:
    """One HAProxy. ``names`` replace words of the file, and each must occur in it."""

    def __init__(self, file: str, folder: Path, names: Mapping[str, str]) -> None:
        program = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")
        if program is None:
            raise RuntimeError("haproxy not found. Type: sudo apt-get install -y haproxy")
        self._program, self._template = program, (FILES / file).read_text()
        folder.mkdir(parents=True, exist_ok=True)
        self._file, self.log = folder / "haproxy.cfg", folder / "haproxy.log"
        # A socket path has at most 107 bytes.
        self._socket = f"/tmp/gatehouse-haproxy-{os.getpid()}-{process.free_port()}.sock"  # noqa: S108
        self._process: subprocess.Popen[bytes] | None = None
        self._write(names)

    def start(self) -> None:
        """Start it and wait until it answers."""
        command = [self._program, "-W", "-db", "-f", str(self._file)]
        self._process = process.start(command, self.log)
        process.wait_until(self.states, f"HAProxy (log: {self.log})")

    def reload(self, names: Mapping[str, str]) -> None:
        """Let it read a changed file, as ``systemctl reload haproxy`` does: no connection is lost or refused."""
        assert self._process is not None
        self._write(names)
        before = self._worker()
        os.kill(self._process.pid, signal.SIGUSR2)
        process.wait_until(lambda: self._worker() not in {before, ""}, "HAProxy reads its file again")

    def stop(self) -> None:
        """Stop it."""
        if self._process is not None:
            process.stop(self._process)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._socket)

    def states(self) -> dict[str, str]:
        """Return the state of each server by name, ``UP`` or ``DOWN`` with more; nothing while it does not answer."""
        # A server without a health check of its own is up if the agent has said so.
        return {
            row["svname"]: "UP" if row["agent_status"] == "L7OK" else row["status"]
            for row in self._statistics()
            if row["svname"] not in {"FRONTEND", "BACKEND"} and row["# pxname"] not in {"crowded", "living"}
        }

    def waiting(self, backend: str) -> int:
        """Return how many requests wait for a place in this backend."""
        rows = self._statistics()
        return sum(
            int(row["qcur"]) for row in rows if (row["# pxname"], row["svname"]) == (backend, "BACKEND")
        )

    def _statistics(self) -> Iterable[dict[str, str]]:
        return csv.DictReader(self._ask("show stat").splitlines())

    def _worker(self) -> str:
        lines = self._ask("show info").splitlines()
        return next((line for line in lines if line.startswith("Pid:")), "")

    def _ask(self, command: str) -> str:
        answer = b""
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(5)
                connection.connect(self._socket)
                connection.sendall(f"{command}\n".encode())
                while data := connection.recv(65536):
                    answer += data
        except OSError:
            return ""
        return answer.decode()

    def _write(self, names: Mapping[str, str]) -> None:
        text = self._template.replace("/run/haproxy/admin.sock", self._socket)
        if os.geteuid():
            # Only root may become another user.
            text = text.replace("user haproxy", "").replace("group haproxy", "")
        for name, value in names.items():
            assert name in text, name
            text = text.replace(name, value)
        self._file.write_text(text)
