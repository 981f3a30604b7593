"""Build a release of the commit HEAD: the application and all wheels in one archive, the same bytes at every run.

``script/release`` starts it with the Python of its tools.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# What a release has of the repository. Tests and what only development needs stay out.
CONTENTS = (
    "CHANGELOG.md",
    "README.md",
    "app",
    "docs",
    "migrations",
    "pyproject.toml",
    "requirements.txt",
    "script/Containerfile",
    "script/gatehouse",
    "script/install",
    "script/lib/installation.py",
    "script/lib/serve.py",
    "script/lib/serve.sh",
    "static",
    "templates",
    "wsgi.py",
)
RELEASED_MIGRATIONS = ROOT / "migrations" / "released.txt"
_PINNED = re.compile(r"^(?P<name>[a-z0-9][a-z0-9._-]*)==[^\n]*(\n    --hash=[^\n]*)*", re.MULTILINE)


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    version = tomllib.loads(_git("show", "HEAD:pyproject.toml"))["project"]["version"]
    if f"v{version}" in _git("tag", "--points-at", "HEAD").split() and (missing := unlisted_migrations()):
        sys.exit(
            f"migrations/released.txt lacks {', '.join(missing)}. Type this line, commit it, and move the tag: "
            "(cd migrations/versions && sha256sum ????_*.py) >migrations/released.txt"
        )
    epoch = int(_git("log", "-1", "--format=%ct"))
    # Archives, compilers and cyclonedx-py take their times from it (reproducible-builds.org/specs/source-date-epoch).
    os.environ["SOURCE_DATE_EPOCH"] = str(epoch)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        name = f"gatehouse-{version}"
        staged = Path(temporary) / name
        staged.mkdir()
        archive = subprocess.run(
            ["git", "archive", "HEAD", *CONTENTS], cwd=ROOT, check=True, capture_output=True
        )
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as committed:
            committed.extractall(staged, filter="data")
        collect_wheels(staged)
        write_sbom(staged, Path(temporary) / "prefix")
        target = folder / f"{name}.tar.gz"
        pack(staged, target, epoch)
    digest = hashlib.sha256(target.read_bytes()).hexdigest()
    (folder / "SHA256SUMS").write_text(f"{digest}  {target.name}\n")
    print(f"{target} ({target.stat().st_size / 1e6:.1f} MB, sha256 {digest})")


def collect_wheels(staged: Path) -> None:
    """Put the wheels of all pinned packages into ``wheels``, with the hashes that the installation requires.

    The packages are those whose hashes requirements.txt lists. mysqlclient has no wheel for Linux, so it is built; its
    library, libmariadb3, comes from Debian, which keeps it and its plugins up to date.
    """
    wheels = staged / "wheels"
    wheels.mkdir()
    tools = (ROOT / "script" / "lib" / "release-requirements.txt").read_text()
    [pip] = [found[0] for found in _PINNED.finditer(tools) if found["name"] == "pip"]
    (staged / "pip.txt").write_text(pip)
    _pip(
        "download", "--no-deps", "--require-hashes", "--no-build-isolation", "--only-binary=:all:",
        "--no-binary=mysqlclient", "-d", wheels, "-r", staged / "requirements.txt", "-r", staged / "pip.txt",
    )  # fmt: skip
    (staged / "pip.txt").unlink()
    [source] = wheels.glob("mysqlclient-*.tar.gz")
    # Debug information would name the folder in which it was compiled.
    os.environ |= {"CFLAGS": "-O2 -g0", "LDFLAGS": "-s"}
    _pip("wheel", "--no-deps", "--no-index", "--no-build-isolation", "-w", wheels, source)
    source.unlink()
    (wheels / "requirements.txt").write_text(requirements_of(wheels))
    (wheels / "platform").write_text(
        f"Python {sys.version_info.major}.{sys.version_info.minor} {sysconfig.get_platform()}\n"
    )


def requirements_of(wheels: Path) -> str:
    """Return what pip installs from the folder: each wheel's name, version and hash, but not pip itself."""
    lines = []
    for wheel in sorted(wheels.glob("*.whl")):
        name, version = wheel.name.split("-")[:2]
        if name != "pip":
            lines.append(
                f"{name}=={version} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"
            )
    return "".join(lines)


def write_sbom(staged: Path, prefix: Path) -> None:
    """Install the release as an operator does, and list what was installed (SBOM, CycloneDX JSON)."""
    subprocess.run([staged / "script" / "install", "--prefix", prefix], check=True)
    environment = prefix / "current" / ".venv" / "bin" / "python"
    subprocess.run(
        [
            Path(sys.executable).with_name("cyclonedx-py"), "environment", environment, "--output-reproducible",
            "--pyproject", staged / "pyproject.toml", "--mc-type", "application", "-o", staged / "sbom.cdx.json",
        ],
        check=True,
    )  # fmt: skip


def pack(folder: Path, target: Path, epoch: int) -> None:
    """Write the folder into a .tar.gz whose bytes depend on nothing but names, contents and ``epoch`` in seconds."""

    def normalize(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime = epoch
        entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
        return entry

    with (
        target.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=epoch, compresslevel=6) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        for path in [folder, *sorted(folder.rglob("*"))]:
            name = path.relative_to(folder.parent).as_posix()
            archive.add(path, arcname=name, recursive=False, filter=normalize)


def unlisted_migrations() -> list[str]:
    """Return the migrations that migrations/released.txt does not list."""
    listed = {line.split()[1] for line in RELEASED_MIGRATIONS.read_text().splitlines()}
    return sorted({path.name for path in (ROOT / "migrations" / "versions").glob("????_*.py")} - listed)


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def _pip(*arguments: str | Path) -> None:
    # The settings of this machine must not lead to other packages, but its index and certificates are needed.
    environ = {name: value for name, value in os.environ.items() if name != "PIP_FIND_LINKS"}
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*command, *arguments], check=True, env=environ)


if __name__ == "__main__":
    main()
