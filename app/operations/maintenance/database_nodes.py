"""Which nodes of a database cluster can be written, for the load balancer in front of them.

Every node is asked each second, with the account of ``DATABASE_URL`` and on a connection that is kept: what the node
says about itself decides (``app/database_engine.py``). HAProxy's agent check reads the answer: ``up``, or ``down`` with
the reason.
"""

from __future__ import annotations

import contextlib
import socketserver
import threading
import time
from collections.abc import Mapping
from typing import Any

import MySQLdb
from msgspec import Struct

from app.database import node_connector
from app.database_engine import is_donor, why_not_writable
from app.database_errors import is_connection_failure
from app.rules.errors import InvalidInput

ASK_SECONDS = 1.0
# A node that answers nothing for so long is down. One that refuses a connection, or says why, is down at once.
SILENCE_SECONDS = 5.0
# Errors of the driver that mean that no server listens there. A timeout looks the same, but takes longer.
_REFUSAL_SECONDS = 0.5


class NodeState(Struct, frozen=True):
    """What a node said last: why it cannot be written, or None if it can. ``is_donor``: it copies itself to another."""

    why_not: str | None
    is_donor: bool = False


class DatabaseNodes:
    """The nodes by name, and what each said last. ``addresses`` are pairs of host and port."""

    def __init__(self, addresses: Mapping[str, tuple[str, int]]) -> None:
        self.addresses, self._connect = addresses, node_connector()
        self.states: dict[str, NodeState] = {}
        self._answered_at: dict[str, float] = {}
        self._connections: dict[str, Any] = {}

    def ask_all(self) -> None:
        """Ask every node once, each in its own thread, and wait for the answers."""
        threads = [threading.Thread(target=self._ask, args=(name,), daemon=True) for name in self.addresses]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def follow(self) -> None:
        """Ask every node each second from now on, in a thread for each."""
        for name in self.addresses:
            threading.Thread(target=self._ask_again_and_again, args=(name,), daemon=True).start()

    def why_not(self, name: str) -> str | None:
        """Return why the node should get no new connections, or None if it should. Raises KeyError for another name.

        A donor is slow, so it gets some only if no other node can be written.
        """
        state = self.states.get(name)
        if name not in self.addresses:
            raise KeyError(name)
        if state is None or time.monotonic() - self._answered_at[name] > SILENCE_SECONDS:
            return "it does not answer"
        if state.why_not is None and state.is_donor:
            others = (self.states[other] for other in self.states if other != name)
            if any(other.why_not is None and not other.is_donor for other in others):
                return "it is a donor, and another node is not"
        return state.why_not

    def _ask_again_and_again(self, name: str) -> None:
        while True:
            time.sleep(ASK_SECONDS)
            self._ask(name)

    def _ask(self, name: str) -> None:
        began = time.monotonic()
        try:
            connection = self._connections.get(name) or self._connect(*self.addresses[name])
            self._connections[name] = connection
            cursor = connection.cursor()
            state = NodeState(why_not_writable(cursor), is_donor(cursor))
        except MySQLdb.Error as error:
            if (lost := self._connections.pop(name, None)) is not None:
                with contextlib.suppress(MySQLdb.Error):
                    lost.close()
                # An idle connection may have been closed: ask again on a new one.
                self._ask(name)
                return
            is_own = is_connection_failure(error)
            if is_own and time.monotonic() - began > _REFUSAL_SECONDS:
                return
            state = NodeState("it refuses connections" if is_own else f"error {error.args[0]}")
        self.states[name], self._answered_at[name] = state, time.monotonic()


def parse_nodes(words: tuple[str, ...]) -> dict[str, tuple[str, int]]:
    """Return the addresses by name of words such as ``db1=10.0.0.11:3306``. Raises InvalidInput."""
    found: dict[str, tuple[str, int]] = {}
    for word in words:
        name, _, address = word.partition("=")
        host, _, port = address.rpartition(":")
        if not name or not host or not port.isdigit() or name in found:
            raise InvalidInput(
                f"{word!r} is not a node. Use a name of its own for each, as in db1=10.0.0.11:3306.",
                field="nodes",
            )
        found[name] = (host, int(port))
    return found


def serve_agent(nodes: DatabaseNodes, port: int) -> socketserver.ThreadingTCPServer:
    """Return a server for agent checks on the loopback interface, which listens already.

    A check sends the name of a node and a line feed, and receives ``up`` or ``down``. To anything else nothing is
    answered, which HAProxy ignores.
    """

    class Handler(socketserver.StreamRequestHandler):
        timeout = 2

        def handle(self) -> None:
            with contextlib.suppress(KeyError, OSError, UnicodeDecodeError):
                reason = nodes.why_not(self.rfile.readline(256).decode().strip())
                self.wfile.write(b"up\n" if reason is None else f"down #{reason}\n".encode())

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True

    return Server(("127.0.0.1", port), Handler)
