"""docs/operations/backup.md as written: a backup and binary logs restore a second of the past, and revive nothing."""

from __future__ import annotations

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
        (folder / "environment").write_text(
            "".join(f"{name}='{value}'\n" for name, value in settings.items())
        )
        self._folder, self._environ = folder, os.environ | {"HOME": str(folder)}
        self._names = {
            "/var/backups/gatehouse": str(folder / "backups"),
            "/var/lib/gatehouse-rehearsal": str(folder / "rehearsal"),
            "/var/lib/mysql": str(server.folder / "data"),
            "/etc/gatehouse/environment": str(folder / "environment"),
            "/root/acme.jsonl": str(folder / "acme.jsonl"),
            "/opt/gatehouse": str(ROOT),
            "REHEARSAL_URL": f"'{database.url.replace('/gatehouse?', '/gatehouse_rehearsal?')}'",
            " -o gatehouse": "",
        }
        self._stubs = (
            "set -eu\nsystemctl() { :; }\n"
            f'gatehouse() {{ (set -a; . {folder}/environment; cd {ROOT}; .venv/bin/flask --app wsgi "$@"); }}\n'
        )

    def type(self, block: str, moment: str = EXAMPLE) -> str:
        """Execute a block with the operator's own names; return what was printed."""
        text = block.replace(EXAMPLE, moment)
        for name, value in self._names.items():
            text = text.replace(name, value)
        done = subprocess.run(
            ["bash"], input=self._stubs + text, env=self._environ, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-6000:]
        return done.stdout


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

    blocks = re.findall(r"^```sh\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)
    back_up, rehearse, make_safe, restore = blocks
    operator = Operator(server, database, tmp_path, instance)
    before = issue(app, steady)
    operator.type(back_up)
    between = issue(app, steady)
    revoke_secret(early)
    # The logs count in whole seconds.
    time.sleep(1.1)
    moment = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")
    time.sleep(1.1)
    revoke_secret(late)
    after = issue(app, steady)
    export = http.get("/audit-events/export", headers=manage)
    (tmp_path / "acme.jsonl").write_bytes(export.data)
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

    operator.type(restore, moment)
    forget(app)
    assert [is_active(app, steady, token) for token in (before, between, after)] == [False, False, False]
    assert not issue(app, early) and not issue(app, late)
    assert is_active(app, steady, issue(app, steady))
