"""Build a release and start it on machines that have nothing else: ``script/test release``, as root.

The archive is built twice and must have the same bytes. It is then installed in a new Debian 12 without network, git
and compiler; and the steps of script/Containerfile are executed in another one. Both serve on a read-only root file
system as a user that no file knows, and the time from the command to the first answer is printed.
"""

from __future__ import annotations

import filecmp
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEBIAN = ROOT / ".cache" / "debian-12"
GUIDE = ROOT / "docs" / "operations" / "install.md"
MAX_SECONDS = 2.0
PORT = 7841
# Processes and mounts end with the command.
_ISOLATED = ("unshare", "--mount", "--pid", "--fork", "--kill-child")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Starts the server on an empty instance folder, sets it up, starts it again, and prints the seconds until it
# answered, and of CPU until it had stopped. It runs beside the server, because both have no network but the loopback
# interface.
PROBE = """
import json, os, signal, subprocess, sys, time, urllib.error, urllib.request
from pathlib import Path
port, command = sys.argv[1], sys.argv[2:]

def cpu_seconds():
    return sum(os.times()[2:4])

def seconds_to_answer():
    begun, cpu = time.monotonic(), cpu_seconds()
    server = subprocess.Popen([*command, "--port", port], start_new_session=True)
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
                seconds = time.monotonic() - begun
                break
        except urllib.error.HTTPError as error:
            error.close()
        except (urllib.error.URLError, ConnectionError):
            pass
        if server.poll() is not None or time.monotonic() > begun + 120:
            sys.exit(f"no answer; exit status {server.poll()}")
        time.sleep(0.01)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/login", timeout=30) as answer:
        assert b"<html" in answer.read()
    server.send_signal(signal.SIGTERM)
    assert server.wait(60) == 0
    return seconds, cpu_seconds() - cpu

first, _ = seconds_to_answer()
setup = [command[0], "setup", "--email", "you@example.com", "--organization", "Acme"]
subprocess.run(setup, input=b"seven tall herons by the weir\\n", check=True, stdout=subprocess.DEVNULL)
again, cpu = map(min, zip(*(seconds_to_answer() for _ in range(3))))
try:
    Path("/opt/gatehouse/written").touch()
    sys.exit("the root file system is not read-only")
except OSError:
    print(json.dumps({"first": first, "again": again, "cpu": cpu, "uid": os.getuid()}))
"""

# Boots systemd in the folder $0. It becomes the root of its mounts: in a chroot there are no user namespaces, which
# PrivateUsers= needs.
BOOT = """set -e
mount --bind "$0" "$0"; cd "$0"; mkdir -p before
mount -t proc proc proc; mount -t sysfs -o ro sysfs sys; mount -t tmpfs -o mode=755 tmpfs run; mount -t tmpfs tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs sys/fs/cgroup
if [ -d /sys/fs/cgroup/systemd ]; then
    mkdir sys/fs/cgroup/systemd; mount -t cgroup -o none,name=systemd cgroup sys/fs/cgroup/systemd
else
    mount -t cgroup2 cgroup2 sys/fs/cgroup
fi
mount -t tmpfs -o mode=755 tmpfs dev; mkdir dev/pts dev/shm; mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
for name in null zero full random urandom tty; do touch dev/$name; mount --bind /dev/$name dev/$name; done
ip link set lo up
pivot_root . before; cd /; umount -l before
exec /usr/bin/env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --unit=multi-user.target
"""
# Follows docs/deployment.md as far as it concerns the unit, then signs in: that hashes a password in a thread of the
# service. A reload and a stop must work too.
USE_UNIT = """
import re, subprocess, time, urllib.error, urllib.parse, urllib.request
from http.cookiejar import CookieJar
PASSWORD = "seven tall herons by the weir"
browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))

def run(*command, **options):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **options).stdout

def get(path, data=None):
    with browser.open("http://127.0.0.1:8000" + path, data, timeout=30) as answer:
        return answer.url, answer.read().decode()

def until_ready():
    for _ in range(600):
        try:
            return get("/readyz")
        except OSError:
            time.sleep(0.1)
    raise SystemExit(run("journalctl", "--no-pager", "--lines=50"))

def workers():
    main = run("systemctl", "show", "--property=MainPID", "--value", "gatehouse").strip()
    return set(open(f"/proc/{main}/task/{main}/children").read().split())

run("systemctl", "start", "gatehouse")
until_ready()
run("/opt/gatehouse/bin/gatehouse", "setup", "--email", "you@example.com", "--organization", "Acme", input=PASSWORD)
_, page = get("/organizations/acme/login")
form = dict(re.findall(r'<input[^>]*name="([a-z_]+)"[^>]*value="([^"]*)"', page))
form |= {"email": "you@example.com", "password": PASSWORD}
url, page = get("/organizations/acme/login", urllib.parse.urlencode(form).encode())
assert "/login" not in url, page
before = workers()
run("systemctl", "reload", "gatehouse")
while workers() & before or not workers():
    time.sleep(0.1)
until_ready()
print(run("systemd-analyze", "--no-pager", "security", "gatehouse").splitlines()[-1])
run("systemctl", "stop", "gatehouse")
assert run("systemctl", "show", "--property=Result", "--value", "gatehouse").strip() == "success"
print("The unit works.")
"""


@dataclass
class Machine:
    """A Debian in a folder: commands see the folder as ``/``."""

    folder: Path
    env: dict[str, str] = field(default_factory=lambda: {"PATH": PATH, "LANG": "C.UTF-8"})

    def run(self, *command: str, online: bool = True) -> None:
        """Run a command as root."""
        prepared = 'mount -t proc proc "$0/proc"; mount --bind /dev "$0/dev"; exec chroot "$@"'
        settings = self.env | _network()
        inside = ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in settings.items())]
        subprocess.run(
            [*_ISOLATED, *([] if online else ["--net"]), "sh", "-c", f"set -e; {prepared}", self.folder, self.folder,
             *inside, *command],
            check=True,
        )  # fmt: skip

    def serve(self, command: list[str], user: str) -> dict[str, float]:
        """Return the seconds to the first answers of a server, without network and on a read-only file system."""
        (self.folder / "probe.py").write_text(PROBE)
        instance = self.folder / "var/lib/gatehouse"
        instance.mkdir(parents=True, exist_ok=True)
        prepared = """
            ip link set lo up
            mount --bind "$0" "$0"; mount --bind "$0/var/lib/gatehouse" "$0/var/lib/gatehouse"
            mount -t proc proc "$0/proc"; mount --bind /dev "$0/dev"; mount -t tmpfs -o mode=1777 tmpfs "$0/tmp"
            mount -o remount,bind,ro "$0"
            exec chroot --userspec "$@"
        """
        settings = self.env | {"GATEHOUSE_BASE_URL": f"http://127.0.0.1:{PORT}"}
        inside = ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in settings.items())]
        ended = subprocess.run(
            [*_ISOLATED, "--net", "sh", "-c", f"set -e; {prepared}", self.folder, user, self.folder,
             *inside, "/usr/bin/python3", "/probe.py", str(PORT), *command],
            check=True, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        answered: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
        return answered

    def use_unit(self) -> None:
        """Start, use, reload and stop the installed unit under a systemd that boots in the folder."""
        self.run("apt-get", "install", "-y", "-qq", "--no-install-recommends", "systemd", "systemd-sysv")
        self.run("useradd", "--system", "--user-group", "--home-dir", "/var/lib/gatehouse", "gatehouse")
        self.run("install", "-d", "-m", "750", "-g", "gatehouse", "/etc/gatehouse")
        shutil.rmtree(self.folder / "var/lib/gatehouse")
        (self.folder / "etc/gatehouse/environment").write_text(
            "GATEHOUSE_BASE_URL=http://127.0.0.1:8000\nGATEHOUSE_INSTANCE=/var/lib/gatehouse\n"
        )
        (self.folder / "etc/gatehouse/environment").chmod(0o600)
        unit = "/opt/gatehouse/current/docs/operations/gatehouse.service"
        self.run("install", "-m", "644", unit, "/etc/systemd/system/")
        (self.folder / "use_unit.py").write_text(USE_UNIT)
        namespaces = ["--net", "--uts", "--ipc", "--cgroup"]
        with subprocess.Popen([*_ISOLATED, *namespaces, "sh", "-c", BOOT, self.folder]) as booting:
            children = Path(f"/proc/{booting.pid}/task/{booting.pid}/children")
            try:
                while not (init := children.read_text().split()):
                    time.sleep(0.1)
                inside = f"nsenter --target {init[0]} --all --root --wd /usr/bin/env -i PATH={PATH}".split()
                # It changes its root, and is systemd once it has made this socket.
                is_up = [*inside, "sh", "-c", "[ -e /use_unit.py ] && [ -S /run/systemd/private ]"]
                for _ in range(1200):
                    if subprocess.run(is_up, check=False).returncode == 0:
                        break
                    time.sleep(0.1)
                subprocess.run(
                    [*inside, "systemctl", "is-system-running", "--wait"], check=False, timeout=120
                )
                subprocess.run([*inside, "python3", "/use_unit.py"], check=True, timeout=600)
            finally:
                booting.kill()


@dataclass
class Image:
    """What the instructions of a Containerfile made: the file system, and how to start a container."""

    machine: Machine
    user: str = "0:0"
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)


def build_image(context: Path, folder: Path) -> Image:
    """Execute script/Containerfile, with Debian 12 for its base images. Return the last stage.

    Raises ValueError for an instruction that it does not use today.
    """
    stages: dict[str, Image] = {}
    for keyword, rest in instructions((ROOT / "script" / "Containerfile").read_text()):
        if keyword == "FROM":
            base, _, name = rest.partition(" AS ")
            if base != "debian:12-slim":
                raise ValueError(f"unknown base image {base}")
            image = Image(new_machine(folder / (name or "image")))
            stages[name] = image
        elif keyword == "RUN":
            image.machine.run("/bin/sh", "-c", rest)
        elif keyword == "COPY":
            option, source, target = rest.split() if rest.startswith("--from=") else ("", *rest.split())
            origin = stages[option.removeprefix("--from=")].machine.folder if option else context
            [found] = origin.glob(source.lstrip("/"))
            destination = image.machine.folder / target.lstrip("/")
            destination.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["cp", "-a", found, destination], check=True)
        elif keyword == "ENV":
            image.machine.env |= dict(pair.split("=", 1) for pair in shlex.split(rest))
        elif keyword == "USER":
            image.user = rest
        elif keyword == "ENTRYPOINT":
            image.entrypoint = json.loads(rest)
        elif keyword == "CMD":
            image.command = json.loads(rest)
        elif keyword != "EXPOSE":
            raise ValueError(f"unknown instruction {keyword}")
    return image


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yield the instructions of a Containerfile, without comments and with continued lines joined."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for line in re.sub(r"\\\n\s*", "", lines).splitlines():
        if line.strip():
            keyword, _, rest = line.partition(" ")
            yield keyword, rest.strip()


def new_machine(folder: Path) -> Machine:
    """Return a new Debian 12, with nothing but its essential packages, that reaches the network as this machine."""
    if not (DEBIAN / "etc/os-release").exists():
        DEBIAN.parent.mkdir(exist_ok=True)
        shutil.rmtree(DEBIAN, ignore_errors=True)
        unfinished = DEBIAN.with_name("debian-12.new")
        shutil.rmtree(unfinished, ignore_errors=True)
        debootstrap = shutil.which("debootstrap", path=f"{os.environ['PATH']}:/usr/sbin") or "debootstrap"
        subprocess.run([debootstrap, "--variant=minbase", "bookworm", str(unfinished)], check=True)
        unfinished.rename(DEBIAN)
    subprocess.run(["cp", "-a", DEBIAN, folder], check=True)
    for file in ("/etc/resolv.conf", "/etc/hosts"):
        shutil.copyfile(file, folder / file.lstrip("/"))
    return Machine(folder)


def _network() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if "proxy" in name} | {
        "DEBIAN_FRONTEND": "noninteractive"
    }


def install_archive(archive: Path, folder: Path) -> Machine:
    """Follow docs/operations/install.md on a new machine, offline but for the two packages of Debian."""
    machine = new_machine(folder)
    machine.run("apt-get", "update", "-qq")
    machine.run("apt-get", "install", "-y", "-qq", "--no-install-recommends", "python3", "libmariadb3")
    for absent in ("usr/bin/git", "usr/bin/cc", "usr/bin/gcc", "usr/lib/python3/dist-packages/pip"):
        assert not (folder / absent).exists(), absent
    shutil.copy2(archive, folder / "root")
    shutil.copy2(archive.with_name("SHA256SUMS"), folder / "root")
    [typed] = [block for block in blocks(GUIDE) if "sha256sum --check" in block]
    typed = typed.replace("VERSION", archive.name.removeprefix("gatehouse-").removesuffix(".tar.gz"))
    machine.run("/bin/sh", "-euc", f"cd /root\n{typed}", online=False)
    return machine


def blocks(document: Path) -> list[str]:
    """Return the blocks of commands of a document."""
    return re.findall(r"^```sh\n(.*?)^```$", document.read_text(), re.MULTILINE | re.DOTALL)


@contextmanager
def built() -> Iterator[tuple[Path, Path]]:
    """Yield a temporary folder and the archive of HEAD, which was built twice with the same result."""
    with tempfile.TemporaryDirectory(prefix="gatehouse-release-", dir="/var/tmp") as temporary:
        folder = Path(temporary)
        for name in ("first", "second"):
            subprocess.run([ROOT / "script" / "release", folder / name], check=True)
        [archive] = (folder / "first").glob("*.tar.gz")
        if not filecmp.cmp(archive, folder / "second" / archive.name, shallow=False):
            sys.exit("Two builds of the same commit differ.")
        subprocess.run(["sha256sum", "--check", "SHA256SUMS"], cwd=folder / "first", check=True)
        yield folder, archive


def main() -> None:
    """Exit status 0: the release was built, installed and started in each way, and answered in time."""
    if os.geteuid():
        sys.exit("Run it as root: it makes file systems of new machines.")
    slow = []
    with built() as (folder, archive):
        machine = install_archive(archive, folder / "installed")
        (machine.folder / "var/lib/gatehouse").mkdir(mode=0o700)
        os.chown(machine.folder / "var/lib/gatehouse", 12345, 12345)
        image = build_image(archive.parent, folder)
        container = [*image.entrypoint, *image.command]
        for name, there, command, user in (
            ("archive", machine, ["/opt/gatehouse/bin/gatehouse", "serve"], "12345:12345"),
            ("image", image.machine, container, image.user),
            ("image, any user", image.machine, container, "23456:0"),
        ):
            if name == "image, any user":
                shutil.rmtree(there.folder / "var/lib/gatehouse")
                (there.folder / "var/lib/gatehouse").mkdir()
                (there.folder / "var/lib/gatehouse").chmod(0o770)
            answered = there.serve(command, user)
            print(
                f"{name}, as user {answered['uid']}: first answer after {answered['first']:.2f} s with an empty "
                f"instance folder, where it creates the database, and after {answered['again']:.2f} s once set up "
                f"({answered['cpu']:.2f} s of CPU from the start to the end)"
            )
            # On a busy machine the CPU time, most of which passes before the answer, says what a quiet one takes.
            if min(answered["again"], answered["cpu"]) > MAX_SECONDS:
                slow.append(name)
        machine.use_unit()
    sys.exit(f"More than {MAX_SECONDS:g} seconds: {', '.join(slow)}" if slow else 0)


if __name__ == "__main__":
    main()
