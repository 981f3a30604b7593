"""docs/deployment.md runs as written; see ``deployment``."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from app.config import VERSION
from tests.journeys.deployment import HOST, SYSTEMCTL, own_names, script
from tests.support import process
from tests.support.https_server import certificate
from tests.support.mariadb import MariaDB
from tests.support.server_script import copy_to, load_script

release = load_script("release")

# What only a whole machine has. nginx is checked where it is installed.
STUBS = {
    "apt-get": "",
    "useradd": "",
    "chown": "",
    "chgrp": "",
    "setpriv": 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"',
    "nginx": "",
    "systemctl": SYSTEMCTL,
}


@pytest.mark.live
@pytest.mark.slow
def test_document_is_followed_word_by_word(tmp_path: Path) -> None:
    """On a MariaDB, or MySQL, that accepts only TLS; a folder stands for ``/``, whose files the test's user owns."""
    server, authority = certificate()
    root = tmp_path / "root"
    for folder in (
        "etc/systemd/system",
        "etc/nginx/conf.d",
        "opt",
        "root",
        "usr/local/bin",
        "var/lib",
        "stubs",
    ):
        (root / folder).mkdir(parents=True)
    port = process.free_port()
    _add_release(root, port)
    live = root / "etc/letsencrypt/live" / HOST
    live.mkdir(parents=True)
    for name in ("fullchain.pem", "privkey.pem"):
        shutil.copyfile(server, live / name)
    for name, text in STUBS.items():
        stub = root / "stubs" / name
        stub.write_text(_inside(root, text if text.startswith("#!") else f"#!/bin/sh\n{text}\n"))
        stub.chmod(0o755)
    # MySQL creates a certificate itself.
    own = [] if MariaDB.mysql else [f"--ssl-cert={server}", f"--ssl-key={server}"]
    database = MariaDB(tmp_path / "mariadb", *own, "--require-secure-transport=ON").start()
    created = database.folder / "data/ca.pem"
    shutil.copyfile(created if MariaDB.mysql else authority, root / "root/database-ca.pem")
    try:
        administer = f"mariadb --no-defaults --socket={database.socket} --user=gatehouse"
        names = own_names() | {
            "10.0.0.%": "127.0.0.%",
            "10.0.0.5": "127.0.0.1",
            "3306": str(database.port),
            "127.0.0.1:8000": f"127.0.0.1:{port}",
            "script/install": f"script/install --prefix {root}/opt/gatehouse",
        }
        typed = _inside(root, script(names, administer))
        environ = {
            "PATH": f"{root}/stubs:{root}/usr/local/bin:{os.environ['PATH']}",
            "HOME": str(root / "root"),
            "GATEHOUSE_ETC": str(root / "etc/gatehouse"),
            "MYSQL_PWD": database.password,
        }
        done = subprocess.run(
            ["bash"], input=typed, env=environ, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        log = root / "var/lib/gatehouse.log"
        assert done.returncode == 0, done.stdout[-6000:] + (log.read_text()[-3000:] if log.exists() else "")
        assert done.stdout.endswith("every step worked\n")
        assert f"Sign in to Acme at https://{HOST}/organizations/acme/login" in done.stdout
        _check_nginx(root)
    finally:
        pid = root / "var/lib/gatehouse.pid"
        if pid.exists() and Path(f"/proc/{pid.read_text().strip()}").exists():
            os.kill(int(pid.read_text()), 9)
        database.stop()


def _add_release(root: Path, port: int) -> None:
    """Put an archive into /root, whose release is installed already: it uses the libraries of this run.

    ``tests/journeys/release.py`` installs one with its libraries.
    """
    folder = root / "opt/gatehouse/releases" / VERSION
    folder.mkdir(parents=True)
    copy_to(folder)
    unit = folder / "docs/operations/gatehouse.service"
    unit.write_text(_inside(root, unit.read_text()).replace("--workers 2", f"--workers 2 --port {port}"))
    unpacked = root / f"root/gatehouse-{VERSION}"
    for name in ("pyproject.toml", "requirements.txt", "script/install"):
        (unpacked / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(folder / name, unpacked / name)
    (unpacked / "wheels").mkdir()
    (unpacked / "wheels/requirements.txt").touch()
    platform = f"Python {sys.version_info.major}.{sys.version_info.minor} {sysconfig.get_platform()}\n"
    (unpacked / "wheels/platform").write_text(platform)
    release.pack(unpacked, root / f"root/gatehouse-{VERSION}.tar.gz", epoch=0)
    shutil.rmtree(unpacked)


def _inside(root: Path, text: str) -> str:
    """Return the text with absolute paths below the folder."""
    return re.sub(r"(?<![\w./:-])/(?=(?:etc|opt|var|root|usr/local)\b)", f"{root}/", text)


def _check_nginx(root: Path) -> None:
    nginx = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if nginx is None or os.geteuid():
        return
    main = root / "nginx.conf"
    main.write_text(f"events {{}}\nhttp {{ include {root}/etc/nginx/conf.d/*.conf; }}\n")
    checked = subprocess.run(
        [nginx, "-t", "-p", str(root), "-c", str(main)], check=False, capture_output=True
    )
    assert checked.returncode == 0, checked.stderr.decode()
