"""The release, as far as seconds allow; ``script/test release`` builds, installs and starts one."""

from __future__ import annotations

import configparser
import hashlib
import os
import re
import shutil
import signal
import subprocess
import tarfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from compose_spec import PyOptions

from app.config import VERSION
from tests.journeys.release import GUIDE, blocks, build_image, instructions
from tests.support import process
from tests.support.server_script import copy_to, load_script, started

ROOT = Path(__file__).resolve().parents[2]
OPERATIONS = ROOT / "docs" / "operations"
UNIT = OPERATIONS / "gatehouse.service"
# An old version and a current one.
KUBERNETES = ("1.31", "1.37")
release = load_script("release")


def test_archive_depends_on_names_contents_and_one_time(tmp_path: Path) -> None:
    archives = []
    for name, created in (("first", ("b", "a/c")), ("second", ("a/c", "b"))):
        folder = tmp_path / name / "gatehouse-1"
        for file in created:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(file)
            os.utime(folder / file, (len(archives) + 1, len(archives) + 1))
        (folder / "b").chmod(0o700 if name == "first" else 0o755)
        (folder / "a/c").chmod(0o600 if name == "first" else 0o664)
        archives.append(tmp_path / f"{name}.tar.gz")
        release.pack(folder, archives[-1], epoch=1_700_000_000)
    assert archives[0].read_bytes() == archives[1].read_bytes()
    with tarfile.open(archives[0]) as archive:
        assert [(entry.name, entry.mode, entry.mtime, entry.uid, entry.uname) for entry in archive] == [
            ("gatehouse-1", 0o755, 1_700_000_000, 0, ""),
            ("gatehouse-1/a", 0o755, 1_700_000_000, 0, ""),
            ("gatehouse-1/a/c", 0o644, 1_700_000_000, 0, ""),
            ("gatehouse-1/b", 0o755, 1_700_000_000, 0, ""),
        ]


def test_release_requires_the_hash_of_each_wheel(tmp_path: Path) -> None:
    for name in ("pip-26.3-py3-none-any.whl", "mysqlclient-2.2.7-cp311-cp311-linux_x86_64.whl"):
        (tmp_path / name).write_text(name)
    digest = hashlib.sha256(b"mysqlclient-2.2.7-cp311-cp311-linux_x86_64.whl").hexdigest()
    assert release.requirements_of(tmp_path) == f"mysqlclient==2.2.7 --hash=sha256:{digest}\n"


def test_release_contains_what_the_service_reads_and_no_tests() -> None:
    assert all((ROOT / name).exists() for name in release.CONTENTS)
    tracked = subprocess.run(
        ["git", "ls-files", *release.CONTENTS], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    folders = {name.split("/")[0] for name in tracked}
    assert folders >= {"app", "docs", "migrations", "static", "templates", "script", "wsgi.py"}
    assert "tests" not in folders
    # What the scripts of a release source or start.
    for script in ("gatehouse", "install"):
        for named in re.findall(r"script/lib/[a-z]+\.\w+", (ROOT / "script" / script).read_text()):
            assert named in tracked or named == "script/lib/prepare.sh", named


def test_locked_packages_have_hashes() -> None:
    for lock in ("requirements.txt", "tests/requirements.txt", "script/lib/release-requirements.txt"):
        text = (ROOT / lock).read_text()
        pinned = re.findall(
            r"^([a-z0-9][\w.-]*)(\[[\w,-]+\])?==\S+[^\n]*\n    --hash=sha256:", text, re.MULTILINE
        )
        packages = re.findall(r"^[a-z0-9]", text, re.MULTILINE)
        assert len(pinned) == len(packages) > 0, lock
    # The service needs no tools of development.
    assert not re.search(r"^(ruff|mypy|pip)==", (ROOT / "requirements.txt").read_text(), re.MULTILINE)


def test_image_runs_as_a_user_without_rights_from_the_archive(tmp_path: Path, monkeypatch: Any) -> None:
    """The interpreter of the long form, without its machines: it knows every instruction."""
    found = list(instructions((ROOT / "script" / "Containerfile").read_text()))
    assert [rest for keyword, rest in found if keyword == "FROM"] == [
        "debian:12-slim AS build",
        "debian:12-slim",
    ]
    ran: list[tuple[str, ...]] = []

    class NoMachine:
        def __init__(self, folder: Path) -> None:
            self.folder, self.env = folder, {"PATH": "/usr/bin"}
            (folder / "opt/gatehouse").mkdir(parents=True)

        def run(self, *command: str) -> None:
            ran.append(command)

    monkeypatch.setattr("tests.journeys.release.new_machine", NoMachine)
    (tmp_path / "gatehouse-1.tar.gz").touch()
    image = build_image(tmp_path, tmp_path / "machines")
    assert image.user == "10001:0"
    assert [*image.entrypoint, *image.command] == ["gatehouse", "serve", "--host", "0.0.0.0"]  # noqa: S104
    assert image.machine.env["GATEHOUSE_INSTANCE"] == "/var/lib/gatehouse"
    tools = " ".join(" ".join(command) for command in ran)
    assert "script/install --prefix /opt/gatehouse" in tools
    assert not re.search(r"\b(git|gcc|build-essential|python3-dev)\b", tools)


def test_compose_file_is_valid_and_hardened(tmp_path: Path) -> None:
    text = (OPERATIONS / "compose.yaml").read_text()
    options = PyOptions()
    options.apply_merge = True
    options.from_yaml(text)
    with pytest.raises(ValueError, match="read_onl"):
        options.from_yaml(text.replace("read_only:", "read_onl:"))
    services = yaml.safe_load(text)["services"]
    for name in ("migrate", "gatehouse"):
        service = services[name]
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
        assert service["image"] == f"gatehouse:{VERSION}"
    # The block in the guide that creates the secrets.
    shell = next(block for block in blocks(GUIDE) if "-m 700 secrets" in block)
    subprocess.run(["sh", "-eu"], input=shell, cwd=tmp_path, text=True, check=True)
    named = {secret["file"] for secret in yaml.safe_load(text)["secrets"].values()}
    assert named == {f"secrets/{path.name}" for path in (tmp_path / "secrets").iterdir()}
    owner = (tmp_path / "secrets/owner_password").read_text()
    assert f":{owner}@database/gatehouse\n" in (tmp_path / "secrets/owner_url").read_text()
    before = {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()}
    subprocess.run(["sh", "-eu"], input=shell, cwd=tmp_path, text=True, check=True)
    after = {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()}
    assert after == before, "typed twice, the block keeps the master key"
    assert services["gatehouse"]["depends_on"] == {"migrate": {"condition": "service_completed_successfully"}}


def _objects() -> Iterator[dict[str, Any]]:
    for file in sorted(OPERATIONS.glob("kubernetes*.yaml")):
        yield from yaml.safe_load_all(file.read_text())


def test_kubernetes_manifests_match_the_schemas() -> None:
    kinds = []
    for thing in _objects():
        for version in KUBERNETES:
            kubernetes_validate.validate(thing, version, strict=True)
        kinds.append(thing["kind"])
    expected = {"Deployment", "Job", "NetworkPolicy", "PodDisruptionBudget", "Secret", "Service"}
    assert expected <= set(kinds)
    [deployment] = [thing for thing in _objects() if thing["kind"] == "Deployment"]
    deployment["spec"]["replica"] = 2
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, KUBERNETES[-1], strict=True)


def test_kubernetes_pods_are_restricted_and_select_each_other() -> None:
    """Pod Security Standards, level restricted; and names that other objects refer to exist."""
    things = {(thing["kind"], thing["metadata"]["name"]): thing for thing in _objects()}
    pods = [
        things[kind]["spec"]["template"]
        for kind in (("Job", "gatehouse-migrate"), ("Deployment", "gatehouse"))
    ]
    for pod in pods:
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        [container] = spec["containers"]
        assert container["image"] == f"gatehouse:{VERSION}"
        assert container["securityContext"] == {
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {mount["name"] for mount in container["volumeMounts"]} == {
            volume["name"] for volume in spec["volumes"]
        }
        assert container["envFrom"] == [{"configMapRef": {"name": "gatehouse"}}]
        # Only a known Host is answered.
        host = {"name": "Host", "value": things["ConfigMap", "gatehouse"]["data"]["GATEHOUSE_BASE_URL"][8:]}
        for probe in (name for name in container if name.endswith("Probe")):
            assert container[probe]["httpGet"]["httpHeaders"] == [host]
    labels = pods[1]["metadata"]["labels"].items()
    for kind in ("Service", "PodDisruptionBudget", "Deployment"):
        selector = things[kind, "gatehouse"]["spec"]["selector"]
        assert selector.get("matchLabels", selector).items() <= labels
        assert not selector.get("matchLabels", selector).items() <= pods[0]["metadata"]["labels"].items()
    # Whoever else reached the pods could choose the addresses that limits count and logs show.
    policy = things["NetworkPolicy", "gatehouse"]["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= labels and policy["policyTypes"] == ["Ingress"]
    [rule] = policy["ingress"]
    assert [list(source) for source in rule["from"]] == [["namespaceSelector"]]
    assert rule["ports"] == [{"port": "http"}]


def test_unit_gives_the_service_little() -> None:
    """Exposure below 3 of 10; where systemd is not installed, the directives that matter most are there."""
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(UNIT.read_text())
    service = unit["Service"]
    assert service["User"] == "gatehouse"
    assert service["ProtectSystem"] == "strict"
    for directive in (
        "NoNewPrivileges",
        "PrivateDevices",
        "ProtectHome",
        "MemoryDenyWriteExecute",
        "RestrictNamespaces",
    ):
        assert service[directive] == "yes", directive
    assert service["CapabilityBoundingSet"] == ""
    if shutil.which("systemd-analyze") is None:
        return
    analyzed = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=30", UNIT],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert analyzed.returncode == 0, analyzed.stdout


def test_released_migrations_are_not_edited() -> None:
    """A database that has run a migration never runs it again, so a change of it would reach new ones only."""
    for line in release.RELEASED_MIGRATIONS.read_text().splitlines():
        digest, name = line.split()
        content = (ROOT / "migrations" / "versions" / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == digest, (
            f"{name} was released: add another migration instead"
        )


@pytest.mark.live
@pytest.mark.slow
def test_workers_keep_their_release_until_a_reload(tmp_path: Path) -> None:
    """script/install adds a folder and changes a link; pages and code must not be of two releases."""
    for name in ("1", "2"):
        (tmp_path / "releases" / name).mkdir(parents=True)
        copy_to(tmp_path / "releases" / name)
    new = tmp_path / "releases/2"
    health, page = new / "app/web/health.py", new / "templates/base.html"
    health.write_text(health.read_text().replace('"alive"', '"renewed"'))
    page.write_text(page.read_text() + "<!-- renewed -->")
    link = tmp_path / "current"
    link.symlink_to("releases/1")
    command = [str(link / "script/gatehouse"), "serve"]
    settings = {"GATEHOUSE_ETC": str(tmp_path / "etc"), "GATEHOUSE_INSTANCE": str(tmp_path / "instance")}
    with started(tmp_path, command=command, **settings) as server:
        server.answers()
        before = server.workers()
        link.unlink()
        link.symlink_to("releases/2")
        assert '"alive"' in server.get("/healthz")
        assert "renewed" not in server.get("/login")
        server.process.send_signal(signal.SIGHUP)
        process.wait_until(lambda: not before & server.workers(), "new workers", seconds=120)
        assert '"renewed"' in server.get("/healthz")
        assert "renewed" in server.get("/login")
        assert server.end() == 0


def test_command_without_readable_settings_does_nothing(tmp_path: Path) -> None:
    """Otherwise a command would be for another, empty installation."""
    (tmp_path / "etc").mkdir()
    environ = {"PATH": os.environ["PATH"], "GATEHOUSE_ETC": str(tmp_path / "etc")}
    done = subprocess.run(
        [ROOT / "script/gatehouse", "doctor"], env=environ, check=False, capture_output=True, text=True
    )
    assert done.returncode == 78
    assert f"{tmp_path}/etc/environment cannot be read. Run this command as root." in done.stderr


def test_release_names_its_version_once() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == VERSION
    installed = re.search(r"sed -n '(s/.*/p)' pyproject\.toml", (ROOT / "script" / "install").read_text())
    assert installed is not None
    read = subprocess.run(
        ["sed", "-n", installed[1], ROOT / "pyproject.toml"], check=True, capture_output=True, text=True
    )
    assert read.stdout.strip() == VERSION


def test_commands_run_as_the_service_without_the_secrets_of_roots_shell(tmp_path: Path) -> None:
    stubs, etc = tmp_path / "stubs", tmp_path / "etc"
    for folder in (stubs, etc):
        folder.mkdir()
    shown = 'env; echo "privileges=$*"'
    for name, text in {"id": '[ "$1" != -u ] || echo 0', "setpriv": shown}.items():
        (stubs / name).write_text(f"#!/bin/sh\n{text}\n")
        (stubs / name).chmod(0o755)
    (etc / "environment").write_text("DATABASE_URL=mysql://service\nSOFTHSM2_CONF=/etc/softhsm\n")
    (etc / "owner").write_text("DATABASE_URL=mysql://owner\n")
    environ = {
        "PATH": f"{stubs}:{os.environ['PATH']}",
        "GATEHOUSE_ETC": str(etc),
        "GATEHOUSE_LOG_LEVEL": "debug",
        # The name of a variable of the script too.
        "release": "x",
        "VAULT_TOKEN": "hvs.operator",
        "MYSQL_PWD": "operator",
    }
    # Processes of the service must not find the owner's password in /proc.
    for command, database, user in (("doctor", "service", "gatehouse"), ("db", "owner", "nobody")):
        done = subprocess.run(
            [ROOT / "script/gatehouse", command], env=environ, capture_output=True, text=True, check=True
        )
        passed = dict(line.split("=", 1) for line in done.stdout.splitlines())
        assert passed["DATABASE_URL"] == f"mysql://{database}"
        assert passed["privileges"].startswith(f"--reuid={user} ")
        assert (passed["GATEHOUSE_LOG_LEVEL"], passed["SOFTHSM2_CONF"]) == ("debug", "/etc/softhsm")
        assert not {"VAULT_TOKEN", "MYSQL_PWD", "release"} & passed.keys()
