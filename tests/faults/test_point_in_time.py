"""docs/operations/backup.md as written: a backup and binary logs restore a second of the past, and revive nothing."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from flask import Flask

from app.config import VERSION
from app.rules.identifiers import digest
from tests.factories import Factory, MadeClient, bearer_header
from tests.faults.test_replica import Logged
from tests.support.applications import application, environment, forget
from tests.support.databases import MariaDBDatabase
from tests.support.servers import ROOT

pytestmark = [pytest.mark.mariadb, pytest.mark.slow]
NAME = "gatehouse"
DOCUMENT = (ROOT / "docs" / "operations" / "backup.md").read_text()
EXAMPLE = "2026-11-23 14:02:00"
EXAMPLE_BACKUP = "/var/backups/gatehouse/gatehouse-2026-11-23T02-00-00Z.sql.gz"
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Logged]:
    """A server with the options of the document."""
    logged = Logged(tmp_path / "mariadb", 1)
    yield logged.start()
    logged.stop()


class Operator:
    """Somebody who types the blocks of the document, in its order."""

    def __init__(self, server: Logged, database: MariaDBDatabase, folder: Path, instance: Path) -> None:
        (folder / "backups").mkdir()
        (folder / ".my.cnf").write_text(
            f"[client]\nsocket={server.socket}\nuser=gatehouse\npassword={server.password}\n"
        )
        settings = environment(database, instance, "http://localhost")
        settings |= {
            f"GATEHOUSE_{key.upper()}_KEY_FILE": str(instance / f"{key}.key") for key in ("secret", "master")
        }
        (etc := folder / "etc").mkdir()
        (etc / "environment").write_text("".join(f"{name}='{value}'\n" for name, value in settings.items()))
        # As script/install leaves it.
        release = folder / "gatehouse" / "releases" / VERSION
        release.parent.mkdir(parents=True)
        release.symlink_to(ROOT)
        (folder / "gatehouse" / "current").symlink_to(release)
        self.backups = folder / "backups"
        self._folder, self._environ = folder, os.environ | {"HOME": str(folder)}
        self._names = {
            "/var/backups/gatehouse": str(self.backups),
            "/var/lib/gatehouse-rehearsal": str(folder / "rehearsal"),
            "/var/lib/gatehouse/": f"{folder}/",
            "/var/lib/mysql": str(server.folder / "data"),
            "/etc/gatehouse": str(etc),
            "/root/": f"{folder}/root/",
            "/opt/gatehouse/": f"{folder}/gatehouse/",
            "REHEARSAL_URL": database.url.replace("/gatehouse?", "/gatehouse_rehearsal?"),
            " -o gatehouse": "",
        }
        self._stubs = (
            "set -eu\nsystemctl() { :; }\n"
            f'gatehouse() {{ GATEHOUSE_ETC="${{GATEHOUSE_ETC-{etc}}}" {ROOT}/script/gatehouse "$@"; }}\n'
        )

    @property
    def newest(self) -> Path:
        """The newest file in the folder of backups."""
        return max(self.backups.iterdir())

    def run(
        self, block: str, moment: str = EXAMPLE, backup: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Execute a block with the operator's own names."""
        text = block.replace(EXAMPLE, moment)
        if EXAMPLE_BACKUP in text:
            text = text.replace(EXAMPLE_BACKUP, str(backup or self.newest))
        for name, value in self._names.items():
            text = text.replace(name, value)
        return subprocess.run(
            ["bash"], input=self._stubs + text, env=self._environ, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def type(self, block: str, moment: str = EXAMPLE, backup: Path | None = None) -> str:
        """Execute a block that succeeds; return what was printed."""
        done = self.run(block, moment, backup)
        assert done.returncode == 0, done.stdout[-6000:]
        return done.stdout

    def is_refused(self, reason: str, block: str, moment: str, backup: Path | None = None) -> bool:
        """Execute a block that must fail for a reason, having changed nothing."""
        done = self.run(block, moment, backup)
        assert reason in done.stdout and "Nothing was changed." in done.stdout, done.stdout[-6000:]
        return done.returncode != 0


def now() -> str:
    """Return the second, between two others: the logs count in whole seconds."""
    time.sleep(1.1)
    moment = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")
    time.sleep(1.1)
    return moment


def issue(app: Flask, client: MadeClient) -> str:
    """Return a new token, or an empty string if the client's secret is not accepted."""
    form = {"grant_type": "client_credentials"}
    reply = app.test_client().post("/oauth/token", data=form, headers=client.basic)
    assert reply.status_code in {200, 401}
    return str(reply.json["access_token"]) if reply.status_code == 200 else ""


def is_active(app: Flask, client: MadeClient, token: str) -> bool:
    reply = app.test_client().post("/oauth/introspect", data={"token": token}, headers=client.basic)
    return bool(reply.json["active"])


def test_backup_and_logs_restore_a_second_and_what_was_revoked_stays_revoked(
    server: Logged, tmp_path: Path
) -> None:
    (instance := tmp_path / "instance").mkdir(mode=0o700)
    database = MariaDBDatabase(server, NAME)
    app = application(database, instance, "http://localhost")
    make = Factory(app)
    make.root()
    organization = make.organization()
    steady, early, late = (make.machine(organization, "clients:read") for _ in range(3))
    manage = bearer_header(make.bearer(organization))
    http = app.test_client()

    def revoke_secret(client: MadeClient) -> None:
        path = f"/clients/{client.client_id}/credentials"
        listed = http.get(path, headers=manage).json["data"]
        assert http.delete(f"{path}/{listed[0]['id']}", headers=manage).status_code == 200

    back_up, rehearse, make_safe, restore = BLOCKS
    operator = Operator(server, database, tmp_path, instance)
    before = issue(app, steady)
    too_early = now()
    operator.type(back_up)
    backup = operator.newest
    between = issue(app, steady)
    revoke_secret(early)
    moment = now()
    revoke_secret(late)
    after = issue(app, steady)
    export = http.get("/audit-events/export", headers=manage)
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "acme.jsonl").write_bytes(export.data)
    assert json.loads(export.data.splitlines()[-1])
    server.execute(f"DELETE FROM {NAME}.access_tokens")

    printed = operator.type(rehearse, moment)
    assert f"gatehouse_rehearsal is as it was at {moment}" in printed
    restored = {
        str(
            server.value(
                f"SELECT COUNT(*) FROM gatehouse_rehearsal.access_tokens WHERE digest = x'{digest(token).hex()}'"
            )
        )
        for token in (before, between)
    }
    assert restored == {"1"}
    lost = f"SELECT COUNT(*) FROM gatehouse_rehearsal.access_tokens WHERE digest = x'{digest(after).hex()}'"
    assert server.value(lost) == 0
    files = {path.name: path.read_bytes() for path in instance.iterdir() if path.is_file()}
    assert "organizations" in operator.type(make_safe)
    assert {path.name: path.read_bytes() for path in instance.iterdir() if path.is_file()} == files
    assert server.value(f"SELECT COUNT(*) FROM {NAME}.access_tokens") == 0

    assert operator.is_refused("The backup is of", restore, too_early)
    operator.type(restore, moment)
    forget(app)
    assert [is_active(app, steady, token) for token in (before, between, after)] == [False, False, False]
    assert not issue(app, early) and not issue(app, late)
    assert is_active(app, steady, issue(app, steady))

    # The last line of the document took the backup that can be followed from here.
    assert operator.newest != backup
    later = now()
    assert operator.is_refused("gatehouse was dropped", restore, later, backup)
    server.execute(f"DELETE FROM {NAME}.access_tokens")
    operator.type(rehearse, later)


def test_script_drops_nothing_before_it_has_read_everything(server: Logged, tmp_path: Path) -> None:
    back_up, rehearse, _, restore = BLOCKS
    database = MariaDBDatabase(server, NAME)
    server.execute(f"CREATE TABLE {NAME}.precious (id INT PRIMARY KEY)")
    server.execute(f"INSERT INTO {NAME}.precious VALUES (1)")
    (instance := tmp_path / "instance").mkdir()
    operator = Operator(server, database, tmp_path, instance)
    operator.type(back_up)
    (tmp_path / "root").mkdir(exist_ok=True)
    (tmp_path / "root" / "acme.jsonl").touch()
    backup = operator.newest
    moment = now()
    text = gzip.decompress(backup.read_bytes()).decode()

    def changed(name: str, content: str) -> Path:
        (path := tmp_path / name).write_bytes(gzip.compress(content.encode()))
        return path

    lines = text.splitlines(keepends=True)
    plain = changed(
        "daily", "".join(line for line in lines if not line.startswith(("-- CHANGE", "-- Gatehouse")))
    )
    assert operator.is_refused("names no position and time", restore, moment, plain)
    assert operator.is_refused("is incomplete", restore, moment, changed("cut", "".join(lines[:-1])))
    (damaged := tmp_path / "damaged").write_bytes(backup.read_bytes()[:-20])
    assert operator.is_refused("cannot be read to its end", restore, moment, damaged)
    gone = changed("gone", re.sub(r"binlog\.\d+", "binlog.000999", text))
    assert operator.is_refused("lacks binlog.000999", restore, moment, gone)
    assert operator.is_refused("is in the future", restore, "2199-01-01 00:00:00")
    assert operator.is_refused("gatehouse exists", restore.replace(" --replace", ""), moment)
    assert server.value(f"SELECT COUNT(*) FROM {NAME}.precious") == 1
    assert "as it was" in operator.type(rehearse, moment)


def test_failed_backup_replaces_no_other(server: Logged, tmp_path: Path) -> None:
    (instance := tmp_path / "instance").mkdir()
    operator = Operator(server, MariaDBDatabase(server, NAME), tmp_path, instance)
    operator.type(BLOCKS[0])
    kept = list(operator.backups.iterdir())
    # A view without its table: the dump fails in the middle.
    server.execute(f"CREATE TABLE {NAME}.source (id INT PRIMARY KEY)")
    server.execute(f"CREATE VIEW {NAME}.broken AS SELECT id FROM {NAME}.source")
    server.execute(f"DROP TABLE {NAME}.source")
    time.sleep(1.1)
    assert operator.run(BLOCKS[0]).returncode != 0
    assert list(operator.backups.iterdir()) == kept
