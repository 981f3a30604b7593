"""Network namespaces joined by virtual cables, which can be pulled. The process needs its own network namespace.

``enter_namespaces`` gives it one, together with its own mounts: what is created in them disappears with the process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_INSIDE = "GATEHOUSE_TEST_NAMESPACES"


def enter_namespaces(module: str) -> bool:
    """Run ``python -m module`` again in namespaces; return False if this machine does not allow that, True inside."""
    if os.environ.get(_INSIDE):
        _run("ip", "link", "set", "lo", "up")
        # The names of namespaces are files here, which would stay.
        _run("mount", "-t", "tmpfs", "tmpfs", "/run")
        Path("/run/netns").mkdir()
        return True
    command = ["unshare", "--mount", "--net", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    try:
        subprocess.run([*command, "ip", "link"], check=True, capture_output=True)
        os.environ[_INSIDE] = "1"
        os.execvp(command[0], [*command, sys.executable, "-m", module, *sys.argv[1:]])  # noqa: S606 - no shell needed
    except (OSError, subprocess.CalledProcessError):
        return False


@dataclass(frozen=True, slots=True)
class Cable:
    """One end of a virtual cable; ``namespace`` is empty for the process's own."""

    device: str
    namespace: str = ""

    def pull(self) -> None:
        """Drop every packet from now on."""
        self._set("down")

    def plug(self) -> None:
        """Carry packets again."""
        self._set("up")

    def _set(self, state: str) -> None:
        inside = ["-n", self.namespace] if self.namespace else []
        _run("ip", *inside, "link", "set", self.device, state)


def create_namespace(name: str) -> list[str]:
    """Create a network namespace and return the command that runs a program in it."""
    _run("ip", "netns", "add", name)
    _run("ip", "-n", name, "link", "set", "lo", "up")
    return ["ip", "netns", "exec", name]


def connect_directly(namespace: str, number: int) -> tuple[str, Cable]:
    """Lay a cable to the namespace; return the IP address of its far end, and the cable."""
    near, far = f"near{number}", f"far{number}"
    _run("ip", "link", "add", near, "type", "veth", "peer", "name", far, "netns", namespace)
    _run("ip", "address", "add", f"10.99.{number}.1/24", "dev", near)
    _run("ip", "-n", namespace, "address", "add", f"10.99.{number}.2/24", "dev", far)
    _run("ip", "link", "set", near, "up")
    _run("ip", "-n", namespace, "link", "set", far, "up")
    # Pulled at the far end: without the near device, packets would be routed elsewhere.
    return f"10.99.{number}.2", Cable(far, namespace)


def connect_by_switch(namespaces: list[str]) -> tuple[list[str], list[Cable]]:
    """Connect the namespaces with each other; return their IP addresses and their cables to the switch."""
    _run("ip", "link", "add", "switch", "type", "bridge")
    _run("ip", "link", "set", "switch", "up")
    hosts, cables = [], []
    for number, namespace in enumerate(namespaces):
        port, host = f"port{number}", f"10.98.0.{number + 1}"
        _run("ip", "link", "add", port, "type", "veth", "peer", "name", "cable", "netns", namespace)
        _run("ip", "link", "set", port, "master", "switch")
        _run("ip", "link", "set", port, "up")
        _run("ip", "-n", namespace, "address", "add", f"{host}/24", "dev", "cable")
        _run("ip", "-n", namespace, "link", "set", "cable", "up")
        hosts.append(host)
        cables.append(Cable(port))
    return hosts, cables


def mount_small_disk(folder: Path, megabytes: int) -> None:
    """Mount a file system of this size, in memory, on the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    _run("mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0700", "tmpfs", str(folder))


def unmount(folder: Path) -> None:
    """Remove the file system from the folder, with its files."""
    _run("umount", "--lazy", str(folder))


def _run(*command: str) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(f"{' '.join(command)}: {result.stderr.strip()}")
