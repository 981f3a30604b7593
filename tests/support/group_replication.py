"""A private MySQL group replication of three servers on the loopback interface, removed after the run.

One of them is the primary, which alone is written. A switch leads new connections to it, as MySQL Router does.
"""

from __future__ import annotations

import secrets
import threading
import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

import MySQLdb

from tests.support import process
from tests.support.mariadb import MariaDB
from tests.support.switch import Switch

# Between two looks for the primary, and until a member counts as silent.
_LOOK_SECONDS, _ASK_SECONDS = 0.2, 2
_CAUSAL_READ = "SET SESSION group_replication_consistency = 'BEFORE'", "SELECT COUNT(*) FROM mysql.user"
_MEMBER = (
    "SELECT MEMBER_STATE FROM performance_schema.replication_group_members WHERE MEMBER_ID = @@server_uuid"
)
_PRIMARY = (
    "SELECT MEMBER_PORT FROM performance_schema.replication_group_members"
    " WHERE MEMBER_ROLE = 'PRIMARY' AND MEMBER_STATE = 'ONLINE'"
)


class GroupNode(MariaDB):
    """One member. The first founds the group, the others join it, and so does the first when it is started again."""

    # What a member writes on its own account at its start must not differ from what the group has.
    preamble = "SET SQL_LOG_BIN = 0;\n"

    def __init__(self, folder: Path, number: int, ports: Sequence[int], group: str, password: str) -> None:
        seeds = [f"127.0.0.1:{port + 1}" for port in ports]
        options = {
            "group-name": group,
            "local-address": seeds[number],
            "group-seeds": ",".join(seeds),
            "start-on-boot": "OFF",
            "recovery-get-public-key": "ON",
            # A silent member is expelled after five seconds, and one without a majority gives up writing.
            "member-expel-timeout": "0",
            "unreachable-majority-timeout": "5",
        }
        super().__init__(
            folder,
            f"--server-id={number + 1}",
            "--log-bin=binlog",
            "--gtid-mode=ON",
            "--enforce-gtid-consistency=ON",
            "--report-host=127.0.0.1",
            "--performance-schema=ON",
            "--plugin-load-add=group_replication.so",
            *(f"--loose-group-replication-{name}={value}" for name, value in options.items()),
        )
        self.port, self.password, self._founds = ports[number], password, number == 0

    def wait(self, seconds: float = 60.0) -> None:
        """Make the server a member of its group and wait until it has what the others have."""
        super().wait(seconds)
        process.wait_until(self._is_joined, f"the group member in {self.folder}", seconds=seconds, pause=0.5)
        process.wait_until(self.is_serving, f"the group member in {self.folder}", seconds=seconds)

    def has_left(self) -> bool:
        """Return whether it needs a restart: it has ended, or it was expelled and could not return."""
        return super().has_left() or self._state() in {"OFFLINE", "ERROR"}

    def is_serving(self) -> bool:
        """Return whether the member is online, and has applied what the others have committed."""
        if self._state() != "ONLINE":
            return False
        return self._ask(*_CAUSAL_READ) is not None

    def primary(self) -> int | None:
        """Return the port of the member that this one takes for the primary, or None if it does not answer."""
        found = self._ask(_PRIMARY)
        return None if found is None else int(found)

    def lead(self) -> None:
        """Make this member the primary."""
        self.execute("SELECT group_replication_set_as_primary(@@server_uuid)")

    def _is_joined(self) -> bool:
        if self._state() in {"ONLINE", "RECOVERING"}:
            return True
        account = f"USER = 'gatehouse', PASSWORD = '{self.password}'"
        founds, self._founds = self._founds, False
        # The group refuses a member that it has not missed yet.
        with suppress(MySQLdb.Error):
            self.execute(f"SET GLOBAL group_replication_bootstrap_group = {founds:d}")
            self.execute(f"START GROUP_REPLICATION {account}")
            self.execute("SET GLOBAL group_replication_bootstrap_group = 0")
        return False

    def _state(self) -> str:
        return self._ask(_MEMBER) or ""

    def _ask(self, *statements: str) -> str | None:
        """Return the answer to the last statement, or None if there is none within seconds."""
        seconds = dict.fromkeys(("connect_timeout", "read_timeout", "write_timeout"), _ASK_SECONDS)
        account = {"user": "gatehouse", "password": self.password}
        try:
            connection = MySQLdb.connect(unix_socket=self.socket, **account, **seconds)
            with closing(connection), connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
                row = cursor.fetchone()
        except MySQLdb.Error:
            return None
        return None if row is None else str(row[0])


class ReplicationGroup:
    """Three members, and a port that leads to the primary."""

    def __init__(self, folder: Path, count: int = 3) -> None:
        first, password, group = process.free_port(2 * count), secrets.token_hex(16), str(uuid.uuid4())
        ports = [first + 2 * number for number in range(count)]
        self.nodes = [
            GroupNode(folder / f"node{number}", number, ports, group, password) for number in range(count)
        ]
        self.switch = Switch(ports[0])
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow_primary, daemon=True)

    def start(self) -> None:
        """Start the members, and follow the primary from now on."""
        for node in self.nodes:
            node.begin()
        for node in self.nodes:
            node.wait()
        self._thread.start()

    def stop(self) -> None:
        """Stop all members and delete their data folders."""
        self._stopping.set()
        self.switch.close()
        for node in self.nodes:
            node.stop()

    def _follow_primary(self) -> None:
        """Lead connections to the member that most take for the primary."""
        while not self._stopping.wait(_LOOK_SECONDS):
            votes = Counter(port for node in self.nodes if (port := node.primary()) is not None)
            for port, count in votes.most_common(1):
                if 2 * count > len(self.nodes):
                    self.switch.target = port
