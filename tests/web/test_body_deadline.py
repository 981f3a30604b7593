"""Request bodies: a slow sender is rejected at the deadline and delays no other request beyond it."""

from __future__ import annotations

import http.client
import io
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from app.web import request_bodies
from app.web.request_bodies import TimedBody, TooSlow
from tests.support import process
from tests.support.databases import MariaDBDatabase
from tests.support.mariadb import MariaDB
from tests.support.request_bodies import StalledBody
from tests.support.servers import THREADS, WORKERS, LiveServer

DEADLINE_SECONDS = 2


def test_body_within_the_deadline_is_read_whole() -> None:
    content = bytes(range(256)) * 1000
    assert TimedBody(io.BytesIO(content), 10).read() == content
    body = TimedBody(io.BytesIO(content), 10)
    assert [len(body.read(100)), len(body.read(10**6)), body.readline()[-1:]] == [100, 65_536, b"\n"]


def test_stalled_body_is_rejected_and_stays_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_bodies, "MAX_BODY_SECONDS", 0.1)
    stalled = StalledBody(b"abc", length=100)
    body = TimedBody(stalled, 10)
    assert body.read(3) == b"abc"
    for _ in range(2):
        with pytest.raises(TooSlow):
            body.read(97)
    assert body.is_late
    stalled.connection_closed.set()


def test_slow_body_has_time_for_each_byte_it_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the minimum rate a body may take longer than the grace period, but never longer than the maximum."""
    monkeypatch.setattr(request_bodies, "MIN_BYTES_PER_SECOND", 10)

    class Slow(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            time.sleep(0.05)
            return super().read(2)

    assert TimedBody(Slow(b"x" * 8), 0.02).read(8) == b"xx"
    assert TimedBody(Slow(b"x" * 8), 0.02).read() == b"x" * 8
    monkeypatch.setattr(request_bodies, "MAX_BODY_SECONDS", 0.07)
    with pytest.raises(TooSlow):
        TimedBody(Slow(b"x" * 8), 0.02).read()


def test_direct_reads_are_few_and_late_ones_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_bodies, "MAX_BODY_SECONDS", 0.05)

    class Slow(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            time.sleep(0.1)
            return super().read(size)

    late = TimedBody(Slow(b"x"), 10, is_direct=True)
    with pytest.raises(TooSlow):
        late.read(1)
    assert len(request_bodies._direct_slots) == request_bodies.MAX_DIRECT_READS
    monkeypatch.setattr(request_bodies, "_direct_slots", [])
    stalled = StalledBody(b"", length=1)
    stalled.read(0)
    body = TimedBody(stalled, 10, is_direct=True)
    with pytest.raises(TooSlow):
        body.read(1)
    stalled.connection_closed.set()
    monkeypatch.setattr(request_bodies, "MAX_BODY_SECONDS", 60)
    assert TimedBody(io.BytesIO(b"x"), 10, is_direct=True).read(1) == b"x"


def test_server_error_is_raised_in_the_request() -> None:
    class Broken:
        def read(self, size: int) -> bytes:
            raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        TimedBody(Broken(), 10).read(1)


@pytest.fixture(scope="module")
def server(mariadb: MariaDB, instance: Path, scratch: Path, worker: str) -> Iterator[LiveServer]:
    """A server with a short deadline."""
    settings = {"GATEHOUSE_BODY_TIMEOUT": str(DEADLINE_SECONDS)}
    server = LiveServer(
        MariaDBDatabase(mariadb, f"bodies_{worker}"), instance, scratch / "bodies.log", settings=settings
    )
    server.start()
    yield server
    server.stop()


def _slow_request(server: LiveServer, path: str, length: int) -> socket.socket:
    """A connection that has sent its headers and one byte of its body."""
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Length: {length}\r\n"
    connection.sendall(f"{head}Content-Type: application/x-www-form-urlencoded\r\n\r\ng".encode())
    return connection


def _await_answers(connections: list[socket.socket], least: int) -> list[socket.socket]:
    """Return the connections with a response once they are so many; the deadline passes in the meantime."""
    answered: list[socket.socket] = []

    def are_enough() -> bool:
        answered[:] = select.select(connections, [], [], 0)[0]
        return len(answered) >= least

    process.wait_until(are_enough, f"{least} responses")
    return answered


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.parametrize("path", ["/oauth/token", "/organizations/root/login"])
def test_dripping_bodies_do_not_stop_other_requests_beyond_the_deadline(
    server: LiveServer, path: str
) -> None:
    """Each of them would hold one of the server's threads: as many as there are."""
    length = 200
    allowed = DEADLINE_SECONDS + length / request_bodies.MIN_BYTES_PER_SECOND
    with ExitStack() as connections:
        dripping = [
            connections.enter_context(_slow_request(server, path, length)) for _ in range(WORKERS * THREADS)
        ]
        started, finished = time.monotonic(), threading.Event()

        def drip() -> None:
            while not finished.wait(0.2):
                for connection in dripping:
                    try:
                        connection.sendall(b"x")
                    except OSError:
                        return

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            other = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=30)
            with closing(other):
                other.request("GET", "/healthz")
                assert other.getresponse().status == 200
            assert time.monotonic() - started < allowed + 3
            direct = WORKERS * request_bodies.MAX_DIRECT_READS if path.endswith("/token") else 0
            answered = _await_answers(dripping, len(dripping) - direct)
            statuses = {connection.recv(1000).split(b"\r\n")[0] for connection in answered}
            assert statuses == {b"HTTP/1.1 408 Request Timeout"}
        finally:
            finished.set()
            thread.join()


@pytest.mark.live
@pytest.mark.slow
def test_upload_in_pieces_is_accepted(server: LiveServer) -> None:
    """It takes longer than the grace period, and each piece arrives in time."""
    body = b"grant_type=client_credentials&padding=" + b"x" * 60_000
    with _slow_request(server, "/oauth/token", len(body)) as connection:
        for start in range(1, len(body), 15_000):
            connection.sendall(body[start : start + 15_000])
            time.sleep(DEADLINE_SECONDS / 3)
        assert connection.recv(1000).startswith(b"HTTP/1.1 401 ")
