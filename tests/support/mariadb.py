"""A private MariaDB or MySQL: its own data folder, socket and port, durable at each commit, removed after the run.

``script/test mysql`` sets ``GATEHOUSE_TEST_MYSQL`` to a folder with the programs of MySQL. Without it the server is
the MariaDB of this machine.
"""

from __future__ import annotations

import atexit
import functools
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import MySQLdb

from tests.support import process

_USER = "gatehouse"
_NEEDED = ("mariadbd", "mariadb-install-db")
# $1 is the folder of the server, $2 that of the template, $3 how many words of the others create a data folder. One
# that was created is copied for the next server.
_START = """
if [ ! -d "$1/data/mysql" ]; then
    if [ -d "$2/data" ]; then
        mkdir -p "$1/data" && cp -r --sparse=always "$2/data/." "$1/data" || exit 1
    else
        "${@:4:$3}" || exit 1
        copy=$(mktemp -d "$2/XXXXXX") && cp -r --sparse=always "$1/data/." "$copy"
        rm -f "$copy/auto.cnf" && mv -T "$copy" "$2/data"
    fi
fi
exec "${@:4+$3}"
"""


@functools.cache
def _template(_mysql: str | None) -> Path:
    """Return the folder of this process for the data folder of a server that has not been started."""
    folder = Path(tempfile.mkdtemp(prefix="gatehouse-template-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def require(mysql: str | None) -> None:
    """Raise, with the installation command, unless the server is installed: MySQL in that folder, or MariaDB."""
    if mysql:
        if not any((Path(mysql) / place / "mysqld").exists() for place in ("bin", "usr/sbin")):
            raise RuntimeError(f"{mysql} has no bin/mysqld or usr/sbin/mysqld. Type: script/test mysql")
        return
    missing = [name for name in _NEEDED if _program(name) is None]
    if missing:
        raise RuntimeError(f"{', '.join(missing)} not found. Type: sudo apt-get install -y mariadb-server")


class MariaDB:
    """One server process. ``options`` are server options such as ``--innodb-buffer-pool-size=2G``."""

    mysql = os.environ.get("GATEHOUSE_TEST_MYSQL")
    # Statements before those that create the superuser at each start.
    preamble = ""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.port = process.free_port()
        # A socket path has at most 107 bytes, and the temporary folders of a test run are easily longer.
        self.socket = f"/tmp/gatehouse-{os.getpid()}-{secrets.token_hex(4)}.sock"  # noqa: S108 - 32 random bits
        self.password = secrets.token_hex(16)
        self.environment = dict(os.environ)
        # A command that runs the server, for example in a network namespace.
        self.launcher: list[str] = []
        self._options = list(options)
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Create the data folder and begin to start the server; call ``wait`` before use."""
        require(self.mysql)
        self.folder.mkdir(parents=True, exist_ok=True)
        init = self.folder / "init.sql"
        init.write_text(
            f"{self.preamble}CREATE USER IF NOT EXISTS {_USER}@'%' IDENTIFIED BY '{self.password}';"
            f"\nGRANT ALL ON *.* TO {_USER}@'%' WITH GRANT OPTION;\n"
        )
        init.chmod(0o600)
        install, server = self._mysql_commands(self.mysql) if self.mysql else self._mariadb_commands()
        as_root = ["--user=root"] if os.geteuid() == 0 else []
        install, server = [*install, *as_root], [*server, *self._server_options(), *as_root, *self._options]
        # One child process does both, so that tests are collected while the data folder is created.
        template = str(_template(self.mysql))
        command = ["bash", "-c", _START, "mariadb", str(self.folder), template, str(len(install))]
        command += [*install, *server]
        command = [*self.launcher, *command]
        self._process = process.start(command, self.folder / "server.log", env=self.environment)

    def address(self) -> dict[str, str | int]:
        """Return what another process of the run needs to ``attach``."""
        address: dict[str, str | int] = {"folder": str(self.folder), "port": self.port}
        return address | {"socket": self.socket, "password": self.password}

    @classmethod
    def attach(cls, address: Mapping[str, str | int]) -> MariaDB:
        """Return the server that another process of the run started."""
        server = cls(Path(str(address["folder"])))
        server.port, server.socket = int(address["port"]), str(address["socket"])
        server.password = str(address["password"])
        return server

    def start(self, seconds: float = 240.0) -> MariaDB:
        """Start the server and wait for so many seconds until it answers."""
        self.begin()
        self.wait(seconds)
        return self

    def wait(self, seconds: float = 240.0) -> None:
        """Wait until the server answers."""
        process.wait_until(self._answers, f"MariaDB in {self.folder}", seconds=seconds)

    def connect(self, database: str = "", *, user: str = _USER) -> MySQLdb.Connection:
        """Return a raw autocommitting connection of the superuser."""
        return MySQLdb.connect(
            unix_socket=self.socket,
            user=user,
            password=self.password,
            database=database,
            charset="utf8mb4",
            autocommit=True,
        )

    def execute(self, statement: str) -> None:
        """Execute and commit one statement."""
        with closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(statement)

    def version(self) -> str:
        """Return the name and version of the server."""
        with closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT VERSION()")
            text = str(cursor.fetchone()[0])
        return f"MariaDB {text}" if "mariadb" in text.lower() else f"MySQL {text}"

    def create_database(self, name: str) -> str:
        """Create an empty database and return its URL."""
        self.execute(f"DROP DATABASE IF EXISTS `{name}`")
        self.execute(f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4")
        return self.url(name)

    def url(self, database: str) -> str:
        """Return the URL of a database over the server's socket."""
        socket = quote(self.socket, "")
        return f"mysql+mysqldb://{_USER}:{self.password}@localhost/{database}?unix_socket={socket}"

    def tcp_url(self, database: str, host: str = "127.0.0.1", port: int | None = None) -> str:
        """Return the URL of a database over the server's port or another one that leads to it.

        The host is by default the loopback interface.
        """
        return f"mysql+mysqldb://{_USER}:{self.password}@{host}:{port or self.port}/{database}"

    def dump(self, database: str, *options: str) -> bytes:
        """Return the ``mariadb-dump`` of the database, binary columns unencoded."""
        command = [
            "mariadb-dump",
            "--no-defaults",
            "--skip-dump-date",
            f"--socket={self.socket}",
            f"--user={_USER}",
        ]
        env = {**os.environ, "MYSQL_PWD": self.password}
        return subprocess.run([*command, *options, database], env=env, check=True, capture_output=True).stdout

    def load(self, database: str, file: Path) -> None:
        """Replace the database's tables by those of a dump."""
        command = ["mariadb", "--no-defaults", f"--socket={self.socket}", f"--user={_USER}", database]
        with file.open("rb") as dump:
            subprocess.run(command, env={**os.environ, "MYSQL_PWD": self.password}, stdin=dump, check=True)

    @property
    def pid(self) -> int:
        """Return the server's process id."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """Kill the server as a power cut would; its data folder stays."""
        assert self._process is not None
        process.kill_group(self._process)

    def shut_down(self) -> None:
        """Stop the server as an operator would; its data folder stays."""
        assert self._process is not None
        process.stop(self._process, patience=30)

    @property
    def is_running(self) -> bool:
        """Whether the server was started and its process has not ended."""
        return self._process is not None and self._process.poll() is None

    def has_left(self) -> bool:
        """Return whether it needs a restart: it was started and has ended."""
        return self._process is not None and not self.is_running

    def is_serving(self) -> bool:
        """Return whether the server answers."""
        try:
            return self._answers()
        except RuntimeError:
            return False

    def pause(self, paused: bool) -> None:
        """Suspend or resume the server."""
        os.kill(self.pid, signal.SIGSTOP if paused else signal.SIGCONT)

    def stop(self) -> None:
        """Stop the server and delete its data folder."""
        if self._process is not None:
            process.kill_group(self._process)
        shutil.rmtree(self.folder, ignore_errors=True)
        Path(self.socket).unlink(missing_ok=True)

    def _answers(self) -> bool:
        if self._process is not None and self._process.poll() is not None:
            log = (self.folder / "server.log").read_text(errors="replace")[-2000:]
            raise RuntimeError(f"MariaDB did not start:\n{log}")
        try:
            self.connect().close()
        except MySQLdb.OperationalError:
            return False
        return True

    def _mariadb_commands(self) -> tuple[list[str], list[str]]:
        """Return the commands that create the data folder and that serve it."""
        install = [
            *(str(_program("mariadb-install-db")), "--no-defaults", f"--datadir={self.folder / 'data'}"),
            # A machine without a hosts file cannot look up its own name.
            *("--force", "--skip-test-db", "--auth-root-authentication-method=normal"),
            # Two servers initialized at the same moment would delete each other's temporary tables in /tmp.
            *("--innodb-log-file-size=64M", f"--tmpdir={self.folder}"),
        ]
        return install, [str(_program("mariadbd")), "--no-defaults", "--innodb-log-file-size=64M"]

    def _mysql_commands(self, mysql: str) -> tuple[list[str], list[str]]:
        """Return the same for MySQL."""
        mysqld = [*_mysqld(Path(mysql)), "--secure-file-priv=NULL"]
        install = [*mysqld, "--initialize-insecure", f"--datadir={self.folder / 'data'}"]
        # MySQL 8.0 before 8.0.30 has another name for it.
        return install, [*mysqld, "--mysqlx=OFF", "--loose-innodb-redo-log-capacity=64M", "--skip-log-bin"]

    def _server_options(self) -> list[str]:
        return [
            f"--datadir={self.folder / 'data'}",
            f"--tmpdir={self.folder}",
            f"--socket={self.socket}",
            f"--port={self.port}",
            "--bind-address=127.0.0.1",
            f"--pid-file={self.folder / 'server.pid'}",
            f"--init-file={self.folder / 'init.sql'}",
            "--innodb-flush-log-at-trx-commit=1",
            "--innodb-buffer-pool-size=256M",
            "--max-connections=500",
            "--character-set-server=utf8mb4",
            "--performance-schema=OFF",
            "--skip-name-resolve",
        ]


def _mysqld(root: Path) -> list[str]:
    """Return the command of MySQL's server: of an unpacked archive of MySQL, or of a folder with a whole Debian.

    The latter runs with the libraries of its own folder.
    """
    if (unpacked := root / "bin/mysqld").exists():
        share = ("--lc-messages-dir", "share"), ("--character-sets-dir", "share/charsets")
        return [
            str(unpacked),
            "--no-defaults",
            f"--basedir={root}",
            *(f"{name}={root / at}" for name, at in share),
        ]
    loader = next((root / "lib64").glob("ld-linux-*"), None) or next((root / "lib").glob("ld-linux-*"))
    return [
        *(str(loader), "--library-path", str(root / f"usr/lib/{os.uname().machine}-linux-gnu")),
        *(str(root / "usr/sbin/mysqld"), "--no-defaults", f"--lc-messages-dir={root / 'usr/share/mysql'}"),
        f"--character-sets-dir={root / 'usr/share/mysql/charsets'}",
        f"--plugin-dir={root / 'usr/lib/mysql/plugin'}",
    ]


def _program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin:/usr/libexec")
