"""Raw malformed HTTP against the real server: never a 500, no silence, and every worker answers afterwards."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.support.concurrent_requests import Post, send_concurrently
from tests.support.servers import LiveServer

pytestmark = [pytest.mark.mariadb, pytest.mark.live]
# Longer than the server waits for the rest of a request that is cut off.
PATIENCE_SECONDS = 30
CROWD = 32
FORM = b"Content-Type: application/x-www-form-urlencoded\r\n"


def malformed(host: bytes) -> Iterator[bytes]:
    """Return requests that break the grammar of HTTP/1.1 (RFC 9112), or fill its limits."""
    to_host = b"Host: " + host + b"\r\n"
    yield from (
        b"\0" * 100,
        b"\r\n" * 50,
        b"\x16\x03\x01\x02\x00" + b"x" * 200,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    )
    for line in (
        b"GET",
        b"GET /",
        b"GET / HTTP/9.9",
        b"GET  /  HTTP/1.1",
        b"GET /\0 HTTP/1.1",
        b"GET /\xff\xfe HTTP/1.1",
        b"GET /%00%ff%c0%af HTTP/1.1",
        b"GET http://[::1 HTTP/1.1",
        b"GET //evil.example/portal HTTP/1.1",
        b"GET " + b"/x" * 40_000 + b" HTTP/1.1",
        b"GET /clients?" + b"limit=" + b"9" * 5_000 + b" HTTP/1.1",
        b"GET /clients?" + b"&".join(b"a%d=1" % number for number in range(3_000)) + b" HTTP/1.1",
        b"G\0T / HTTP/1.1",
        b"X" * 5_000 + b" / HTTP/1.1",
        b"OPTIONS * HTTP/1.1",
        b"CONNECT evil.example:443 HTTP/1.1",
        b"TRACE / HTTP/1.1",
    ):
        yield line + b"\r\n" + to_host + b"\r\n"
    for header in (
        b"Host: evil.example",
        b"Host: a\0b",
        b"Cookie: " + b"a=b; " * 2_000,
        b"Cookie: " + b"; ".join(b"gth-%08d=x" % number for number in range(300)),
        b'Cookie: =; ;;=\xff"; a="\\',
        b"Authorization: Basic " + b"/" * 1_001,
        b"Authorization: Bearer \xf0\x9f\x92\xa9",
        b"DPoP: " + b"." * 5_000,
        b"Accept-Language: " + b"de;q=" * 1_000,
        b"If-None-Match: " + b'"x",' * 1_000,
        b"X-Forwarded-For: " + b"1," * 1_000,
        b"X-Request-Id: \x01\x02",
        b": no name",
        b"No-Colon",
        b" Folded: x",
        b"Range: bytes=0-" + b"9" * 500,
        b"Expect: 200-maybe",
        b"\r\n".join(b"X-%d: y" % number for number in range(2_000)),
    ):
        yield b"GET /portal/acme HTTP/1.1\r\n" + to_host + header + b"\r\n\r\n"
    post = b"POST /oauth/token HTTP/1.1\r\n" + to_host + FORM
    for rest in (
        b"Content-Length: -1\r\n\r\n",
        b"Content-Length: 1e3\r\n\r\n",
        b"Content-Length: " + b"9" * 40 + b"\r\n\r\n",
        b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: gzip\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nx",
        b"Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n5\r\nabc",
        b"Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
        b"Content-Length: 100\r\n\r\ngrant_type=client_credentials",
        b"Content-Length: 8\r\n\r\na=%ff%00",
    ):
        yield post + rest
    for body in (
        b"[" * 5_000,
        b'{"name":' * 2_000,
        b'{"name": 1' + b"0" * 20_000 + b"}",
        b'{"name": NaN, "name": Infinity}',
        b'{"name": "\\ud800"}',
        b'{"name": "a", "name": "b"}',
        b"\xff\xfe{\0}\0",
        '{"name": "\u1100\u1161\u11a8\ufb01\u202e"}'.encode(),
    ):
        head = b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        for path in (b"/leak-reports", b"/clients", b"/oauth/register"):
            yield b"POST " + path + b" HTTP/1.1\r\n" + to_host + head + body
    for boundary, body in (
        (b"x", b"--x\r\n\r\n" * 500),
        (b"", b"--\r\n"),
        (b"y" * 2_000, b"--y"),
        (b"x", b'--x\r\nContent-Disposition: form-data; name="a"; filename="\0"\r\n\r\n\xff'),
    ):
        head = b"Content-Type: multipart/form-data; boundary=" + boundary
        head += b"\r\nContent-Length: %d\r\n\r\n" % len(body)
        yield b"POST /organizations/acme/login HTTP/1.1\r\n" + to_host + head + body
    pipelined = b"GET /healthz HTTP/1.1\r\n" + to_host + b"\r\n"
    yield pipelined * 50
    yield pipelined * 2 + b"\0\0\0\r\n\r\n"


def exchange(address: tuple[str, int], sent: bytes, *, is_cut: bool) -> bytes:
    """Send the bytes and return what arrives until the server closes; ``is_cut`` closes at once instead."""
    with socket.create_connection(address, timeout=PATIENCE_SECONDS) as connection:
        received = b""
        try:
            connection.sendall(sent)
            if is_cut:
                return received
            # The server may have closed the connection already.
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
            while chunk := connection.recv(65_536):
                received += chunk
        except (ConnectionResetError, BrokenPipeError):
            return received
        return received


def test_malformed_http_is_rejected_and_every_thread_answers_afterwards(live_server: LiveServer) -> None:
    parts = urlsplit(live_server.url)
    assert parts.hostname is not None and parts.port is not None
    address = (parts.hostname, parts.port)
    wrong = []
    for sent in malformed(parts.netloc.encode()):
        for is_cut in (False, True):
            received = exchange(address, sent, is_cut=is_cut)
            statuses = [line.split()[1] for line in received.splitlines() if line.startswith(b"HTTP/1.")]
            if any(status >= b"500" for status in statuses):
                wrong.append((sent[:120], statuses))
    assert wrong == []
    workers = set()
    for _ in range(10):
        replies = send_concurrently(live_server.url, [Post("/readyz", method="GET")] * CROWD)
        assert {reply.status for reply in replies} == {200}
        workers |= {reply.worker for reply in replies}
        # On a busy machine one of them may take all connections.
        if len(workers) == 2:
            break
    assert len(workers) == 2
