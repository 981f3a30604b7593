"""A TCP forwarder whose target can be changed, as a load balancer in front of database nodes does."""

from __future__ import annotations

import contextlib
import socket
import threading

from tests.support import process


class Switch:
    """Forwards ``port`` to a loopback port; connections that exist stay with the node that they were opened to."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = process.free_port()
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stop accepting connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self.target))
                except ConnectionRefusedError:
                    client.close()
                    continue
                threading.Thread(target=_serve, args=(client, server), daemon=True).start()


def _serve(client: socket.socket, server: socket.socket) -> None:
    with client, server:
        back = threading.Thread(target=_forward, args=(server, client), daemon=True)
        back.start()
        _forward(client, server)
        back.join()


def _forward(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
