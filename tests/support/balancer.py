"""A TCP load balancer that asks /readyz and, like the simplest ones, repeats no request."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

_CHECK_SECONDS = 0.2
_CHECK_TIMEOUT_SECONDS = 2.0


class Balancer:
    """Spread connections over the ports in ``backends`` that are ready. A failed connection fails its request."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.host = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.url = f"http://{self.host}"
        self.backends: list[int] = []
        self.ready: list[int] = []
        self.failures: list[str] = []
        self._closing = threading.Event()
        for work in (self._check, self._accept):
            threading.Thread(target=work, daemon=True).start()

    def close(self) -> None:
        """Stop checking and accepting."""
        self._closing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _check(self) -> None:
        with ThreadPoolExecutor(4) as pool:
            while not self._closing.wait(_CHECK_SECONDS):
                backends = list(self.backends)
                found = pool.map(self._is_ready, backends)
                # Without any, it goes on with the last ones, as Envoy does.
                self.ready = [
                    port for port, is_ready in zip(backends, found, strict=True) if is_ready
                ] or self.ready

    def _is_ready(self, port: int) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_CHECK_TIMEOUT_SECONDS)
        with contextlib.closing(connection):
            try:
                connection.request("GET", "/readyz", headers={"Host": self.host})
                return connection.getresponse().status == 200
            except (http.client.HTTPException, OSError):
                return False

    def _accept(self) -> None:
        turn = 0
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                turn += 1
                ready = self.ready
                port = ready[turn % len(ready)] if ready else 0
                threading.Thread(target=self._serve, args=(client, port), daemon=True).start()

    def _serve(self, client: socket.socket, port: int) -> None:
        with client:
            try:
                server = socket.create_connection(("127.0.0.1", port))
            except OSError as error:
                self.failures.append(f"{port or 'no server is ready'}: {error}")
                return
            with server:
                threading.Thread(target=_copy, args=(client, server), daemon=True).start()
                _copy(server, client)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def balancing() -> Iterator[Balancer]:
    """Run a balancer without backends."""
    balancer = Balancer()
    try:
        yield balancer
    finally:
        balancer.close()
