"""The driver's connection to MySQL and MariaDB, which sends statements without results together with COMMIT."""

from __future__ import annotations

from typing import Any

from MySQLdb import OperationalError
from MySQLdb.connections import Connection
from MySQLdb.constants import CLIENT


class MySQLConnection(Connection):  # type: ignore[misc]
    """A connection whose last writes cost no round trips of their own.

    ``waiting`` holds statements without results, such as the INSERT of an audit event. They are sent before the next
    statement, or else in one packet with COMMIT. The server executes such a packet up to the first statement that
    fails, so COMMIT is executed only if all of them succeeded, and a lost reply leaves the same question open as one
    to COMMIT alone.
    """

    MAX_WAITING_BYTES = 1 << 20
    """More is sent at once: the server limits the size of a packet, usually to 16 megabytes or more."""

    def __init__(self, *arguments: Any, **parameters: Any) -> None:
        self.waiting: list[bytes] = []
        super().__init__(*arguments, **parameters)
        # The driver continues without TLS if the server, or somebody in between, does not offer it.
        is_required = "ssl" in parameters or parameters.get("ssl_mode") == "REQUIRED"
        if is_required and not self.server_capabilities & CLIENT.SSL:
            self.close()
            raise OperationalError(2026, "The server does not offer TLS, which the URL demands.")

    def execute_later(self, statement: bytes) -> None:
        """Let the statement wait."""
        self.waiting.append(statement)
        if sum(map(len, self.waiting)) > self.MAX_WAITING_BYTES:
            self.send_waiting()

    def query(self, query: bytes) -> None:
        """Execute the statement after those that wait; cursors end here too. Raises the driver's errors."""
        if self.waiting:
            self.send_waiting()
        super().query(query)

    def commit(self) -> None:
        """Execute what waits, and commit, which costs nothing in autocommit mode. Raises the driver's errors."""
        if self.get_autocommit():
            return
        if self.waiting:
            self.send_waiting(b"COMMIT")
        else:
            super().commit()

    def rollback(self) -> None:
        """Forget what waits, and roll back, which costs nothing in autocommit mode. Raises the driver's errors."""
        self.waiting.clear()
        if not self.get_autocommit():
            super().rollback()

    def send_waiting(self, *last: bytes) -> None:
        """Execute what waits, and after it ``last``, in one packet. Raises the driver's errors."""
        packet = b";".join([*self.waiting, *last])
        self.waiting.clear()
        super().query(packet)
        # Each reply is read, and raised if it is an error.
        while self.next_result() == 0:
            pass
