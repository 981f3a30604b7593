"""docs/operations/keys.md runs as written: keys move from files to Vault and from there to a PKCS#11 token."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from flask_migrate import upgrade

from app import config, create_app
from app.extensions import db
from tests.config.test_kms import MODULE, make_token
from tests.factories import Factory
from tests.support import process
from tests.support.server_script import ROOT, Started, copy_to, started
from tests.support.switch import Switch
from tests.support.vault import running_vault

BLOCKS = re.findall(
    r"^```sh\n(.*?)^```$", (ROOT / "docs/operations/keys.md").read_text(), re.MULTILINE | re.DOTALL
)
GATEHOUSE = """#!/bin/sh
set -eua
. ETC/environment
cd COPY
exec .venv/bin/flask --app wsgi "$@"
"""


# The user gatehouse is missing here.
INSTALL = """#!/bin/sh
while [ $# -gt 2 ]; do shift; done
exec cp "$@"
"""


def settings(etc: Path) -> dict[str, str]:
    lines = (etc / "environment").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.either
def test_keys_document_is_followed_word_by_word(tmp_path: Path) -> None:
    """A running server needs no service; a start without it ends with status 75."""
    copy, etc, stubs = copy_to(tmp_path / "gatehouse"), tmp_path / "etc", tmp_path / "stubs"
    etc.mkdir()
    stubs.mkdir()
    for name, text in {"systemctl": "", "chown": "", "install": INSTALL, "gatehouse": GATEHOUSE}.items():
        (stubs / name).write_text(text.replace("ETC", str(etc)).replace("COPY", str(copy)) or "#!/bin/sh\n")
        (stubs / name).chmod(0o755)
    (etc / "environment").write_text(f"GATEHOUSE_INSTANCE={tmp_path / 'instance'}\n")
    # As a first start does, where password hashes and RSA keys are cheap.
    app = create_app(config.load({"GATEHOUSE_INSTANCE": str(tmp_path / "instance")}))
    with app.app_context():
        upgrade()
        Factory(app).root()
        for engine in db.engines.values():
            engine.dispose()
    shutil.move(tmp_path / "instance/master.key", etc / "master.key")
    with (etc / "environment").open("a") as file:
        file.write(f"GATEHOUSE_MASTER_KEY_FILE={etc / 'master.key'}\n")
    pkcs11_url, pin = make_token(tmp_path / "softhsm")

    with running_vault(tmp_path / "vault") as vault:
        switch = Switch(vault.port)
        method, role_id, secret_id = vault.approle.split(":")
        assert method == "approle"
        names = {
            "/etc/gatehouse": str(etc),
            "/root/vault-secret-id": secret_id,
            "/root/pin": str(pin),
            "ROLE_ID": role_id,
            "vault://vault.example.com:8200/transit/gatehouse": vault.url.replace(
                str(vault.port), str(switch.port)
            ),
            f"pkcs11:token=gatehouse;object=master?module-path={MODULE}": pkcs11_url,
        }

        def type_block(block: str) -> str:
            for example, own in names.items():
                block = block.replace(example, own)
            environ = {"PATH": f"{stubs}:{os.environ['PATH']}", "HOME": str(tmp_path)}
            environ["SOFTHSM2_CONF"] = os.environ["SOFTHSM2_CONF"]
            done = subprocess.run(
                ["bash", "-e"], input=block, env=environ, text=True, check=False,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300,
            )  # fmt: skip
            assert done.returncode == 0, done.stdout
            return done.stdout

        to_vault, to_token, *replacement = BLOCKS
        said = type_block(to_vault)
        assert (
            f"GATEHOUSE_MASTER_KEY is wrapped by {names['vault://vault.example.com:8200/transit/gatehouse']}"
            in said
        )
        (etc / "master.key").unlink()
        with started(copy, **settings(etc)) as server:
            server.answers()
            switch.target = process.free_port()
            check_without_service(server)
            with started(copy, **settings(etc)) as late:
                assert late.process.wait(60) == 75
                assert "gives no answer" in late.output()
            switch.target = vault.port
            assert server.end() == 0
        type_block(to_token)
        before = (etc / "environment").read_text()
        said = "".join(map(type_block, replacement))
        assert "The master key matches this database" in said and "previous" not in said.split("rewrapped")[1]
        switch.close()
    # Vault is gone for good, and with it the old key.
    with started(copy, **settings(etc)) as server:
        server.answers()
        assert server.end() == 0
    (etc / "environment").write_text(before.replace("master-vault.key", "master-hsm.key"))
    with started(copy, **settings(etc)) as old:
        assert old.process.wait(60) == 78
        assert "The master key does not match this database" in old.output()


def check_without_service(server: Started) -> None:
    """Kill a worker and reload the code: both start workers that have no service to ask."""
    [killed] = before = server.workers()
    os.kill(killed, signal.SIGKILL)
    process.wait_until(lambda: server.workers() - before, "another worker", seconds=60)
    server.answers()
    before = server.workers()
    server.process.send_signal(signal.SIGHUP)
    process.wait_until(lambda: server.workers() and not server.workers() & before, "a reload", seconds=120)
    server.answers()
    assert "Not reloaded" not in server.output()
