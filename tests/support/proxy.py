"""A TCP proxy in front of a database that drops messages on command, like a failing network."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def _ending(connection: socket.socket) -> Iterator[None]:
    """Close the socket so that the other side notices, even while a thread reads from it here."""
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()


class LosingProxy:
    """Forward every byte to ``port`` until told to drop a statement or its response."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._needle: bytes | None = None
        self._reaches_server = True
        self.lost = 0
        self._lock = threading.Lock()
        self._standing: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_next(self, statement: bytes, *, after_it_took_effect: bool) -> None:
        """Cut the connection that next sends the statement: after the server answered it, or before it
        arrived.
        """
        self._needle, self._reaches_server = statement.lower(), after_it_took_effect

    def close(self) -> None:
        """Stop accepting and close every connection."""
        for connection in self._standing:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                self._standing += [client, server]
                threading.Thread(target=self._serve, args=(client, server), daemon=True).start()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        silent, answered = threading.Event(), threading.Event()
        threading.Thread(target=self._answer, args=(server, client, silent, answered), daemon=True).start()
        with contextlib.suppress(OSError), _ending(client), _ending(server):
            while data := client.recv(65536):
                if self._is_wanted(data):
                    if self._reaches_server:
                        silent.set()
                        server.sendall(data)
                        answered.wait(5)
                    self.lost += 1
                    return
                server.sendall(data)

    def _answer(
        self,
        server: socket.socket,
        client: socket.socket,
        silent: threading.Event,
        answered: threading.Event,
    ) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                if silent.is_set():
                    answered.set()
                    return
                client.sendall(data)
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)

    def _is_wanted(self, data: bytes) -> bool:
        with self._lock:
            if self._needle is None or self._needle not in data.lower():
                return False
            self._needle = None
            return True
