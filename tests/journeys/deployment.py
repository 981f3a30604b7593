"""Type what docs/deployment.md says, word by word, with the reader's own names in place of its examples.

``script/test deployment`` does it on a new Debian 12 in a folder of its own, as root; ``test_deployment.py`` does it in
a folder that stands for ``/``, with a private MariaDB. No init system runs in either: ``SYSTEMCTL`` takes its place.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from app.config import VERSION
from tests.support.https_server import certificate

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = (ROOT / "docs" / "deployment.md").read_text()
PASSWORD = "seven tall herons by the weir"
HOST = "id.example.com"
# Starts, reloads and stops the unit as it is written.
SYSTEMCTL = """#!/bin/sh
set -eu
unit=/etc/systemd/system/gatehouse.service pid=/var/lib/gatehouse.pid
value() { sed -n "s/^$1=//p" "$unit"; }
case $* in
"enable --now gatehouse" | "start gatehouse")
    set -a; . "$(value EnvironmentFile)"; set +a
    cd "$(value WorkingDirectory)"
    user=$(value User)
    setsid setpriv --reuid="$user" --regid="$user" --init-groups -- $(value ExecStart) >>/var/lib/gatehouse.log 2>&1 &
    echo $! >"$pid" ;;
"reload gatehouse") kill -HUP "$(cat "$pid")" ;;
"stop gatehouse")
    kill -TERM "$(cat "$pid")"
    while kill -0 "$(cat "$pid")" 2>/dev/null; do sleep 0.1; done ;;
daemon-reload | "reload nginx") ;;
*) echo "systemctl $*: not expected" >&2; exit 1 ;;
esac
"""
# Whoever follows the document finds these true.
CHECKS = f"""
gatehouse doctor | tee /var/lib/doctor.txt
! grep -e WRONG -e "not encrypted" /var/lib/doctor.txt
grep -F "may only read and write rows of its own database" /var/lib/doctor.txt
curl -sf --retry 60 --retry-delay 1 --retry-all-errors -H 'Host: {HOST}' http://127.0.0.1:8000/readyz
# Without the settings nothing is created in the service's folder.
cd /opt/gatehouse/current
status=0; .venv/bin/flask --app wsgi doctor 2>/var/lib/error.txt || status=$?
[ $status = 78 ]
grep -F "Neither DATABASE_URL nor GATEHOUSE_INSTANCE is set" /var/lib/error.txt
[ ! -e instance ]
# Without the parameter for TLS, the doctor says what to add.
cp /etc/gatehouse/environment /var/lib/environment
sed -i 's/?ssl_ca=[^'"'"']*//' /etc/gatehouse/environment
! gatehouse doctor >/var/lib/doctor.txt
grep -F "?ssl_ca=" /var/lib/doctor.txt
mv /var/lib/environment /etc/gatehouse/environment
systemctl stop gatehouse
echo every step worked
"""


def blocks() -> list[tuple[str, str]]:
    """Return the language and text of each block of commands, in the document's order."""
    found = re.findall(r"^```(\w+)\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)
    assert {language for language, _ in found} == {"sh", "sql"}
    return found


def script(names: Mapping[str, str], administer: str) -> str:
    """Return all blocks as one script.

    ``names`` replace the document's examples, ``administer`` is the command that executes SQL on the database server.
    """
    steps = []
    for language, block in blocks():
        text = block if language == "sh" else f"{administer} <<'SQL'\n{block}SQL\n"
        # The reader is asked for the password; everything else needs no answer.
        steps.append(re.sub(r"^(gatehouse setup .*)$", rf"echo '{PASSWORD}' | \1", text, flags=re.MULTILINE))
    text = "\n".join(["set -eux", *steps, CHECKS])
    for name, value in names.items():
        assert name in text, name
        text = text.replace(name, value)
    return text


def own_names() -> dict[str, str]:
    """Return what every reader replaces."""
    return {"VERSION": VERSION} | {
        name: secrets.token_hex(24) for name in ("SERVICE_PASSWORD", "OWNER_PASSWORD")
    }


# A database server beside the service, with TLS; and what a machine has that is installed from an image.
_PREPARE = """
set -eu
mount -t proc proc /proc; mount -t devpts devpts /dev/pts
export DEBIAN_FRONTEND=noninteractive HOME=/root
printf '#!/bin/sh\\nexit 101\\n' >/usr/sbin/policy-rc.d; chmod 755 /usr/sbin/policy-rc.d
apt-get update -qq
apt-get install -y -qq mariadb-server >/dev/null
install -d -o mysql /run/mysqld
install -m 600 -o mysql /root/server.pem /etc/mysql/server.pem
mariadbd --user=mysql --ssl-cert=/etc/mysql/server.pem --ssl-key=/etc/mysql/server.pem --require-secure-transport=ON \\
    >/root/mariadb.log 2>&1 &
until mariadb -e 'SELECT 1' >/dev/null 2>&1; do sleep 0.5; done
install -d /etc/letsencrypt/live/id.example.com
cp /root/server.pem /etc/letsencrypt/live/id.example.com/fullchain.pem
cp /root/server.pem /etc/letsencrypt/live/id.example.com/privkey.pem
install -m 755 /root/systemctl /usr/local/sbin/systemctl
"""


def main() -> None:
    """Follow the document on a new Debian 12 in a temporary folder. Exit status 0: every step worked."""
    debootstrap = shutil.which("debootstrap", path=f"{os.environ['PATH']}:/usr/sbin")
    if os.geteuid() or debootstrap is None:
        sys.exit("Run it as root, and type first: apt-get install -y debootstrap")
    with tempfile.TemporaryDirectory(prefix="gatehouse-debian-", dir="/var/tmp") as temporary:
        folder = Path(temporary) / "root"
        subprocess.run([debootstrap, "--include=ca-certificates", "bookworm", str(folder)], check=True)
        # The new machine reaches the network as this one does.
        for file in ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt"):
            shutil.copyfile(file, folder / file.removeprefix("/"))
        home = folder / "root"
        subprocess.run([ROOT / "script" / "release", home], check=True)
        server, authority = certificate()
        shutil.copyfile(server, home / "server.pem")
        shutil.copyfile(authority, home / "database-ca.pem")
        (home / "systemctl").write_text(SYSTEMCTL)
        names = own_names() | {
            "10.0.0.%": "127.0.0.%",
            "10.0.0.5": "127.0.0.1",
        }
        (home / "deploy.sh").write_text(_PREPARE + script(names, "mariadb"))
        environ = {
            name: value for name, value in os.environ.items() if name.startswith("PIP_") or "proxy" in name
        }
        environ |= {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
        # All its processes and mounts end with it.
        isolated = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "chroot", str(folder)]
        subprocess.run(["mount", "--bind", "/dev", str(folder / "dev")], check=True)
        try:
            ended = subprocess.run([*isolated, "bash", "/root/deploy.sh"], env=environ, check=False)
        finally:
            subprocess.run(["umount", str(folder / "dev")], check=True)
    sys.exit(ended.returncode)


if __name__ == "__main__":
    main()
