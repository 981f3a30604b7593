"""Request bodies at the OAuth endpoints of a real server: at the limit, above it, and without a length."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from urllib.parse import urlsplit

import pytest

from app.oauth.protocol_request import MAX_BODY
from tests.support.servers import LiveServer

FORM = "Content-Type: application/x-www-form-urlencoded"
PATHS = pytest.mark.parametrize("path", ["/oauth/token", "/oauth/introspect", "/oauth/revoke"])
START = b"grant_type=client_credentials&token="


def post(server: LiveServer, path: str, size: int, *, chunked: bool) -> tuple[int, dict[str, str]]:
    """Send a form of this size and return (status, document).

    The server may close the connection while the rest is being sent, so a failure to send the rest is ignored.
    """
    body = START + b"x" * (size - len(START))
    length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {size}"
    if chunked:
        body = f"{size:x}\r\n".encode() + body + b"\r\n0\r\n\r\n"
    address = urlsplit(server.url)
    head = f"POST {path} HTTP/1.1\r\nHost: {address.netloc}\r\n{FORM}\r\n{length}\r\n\r\n"
    with socket.create_connection((address.hostname, address.port), timeout=10) as connection:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(head.encode() + body)
        answer = http.client.HTTPResponse(connection, method="POST")
        answer.begin()
        return answer.status, json.loads(answer.read())


@PATHS
@pytest.mark.parametrize("chunked", [False, True], ids=["with a length", "chunked"])
def test_body_over_the_limit_is_rejected_with_and_without_a_length(
    live_server: LiveServer, path: str, chunked: bool
) -> None:
    """JS-2: the error has the form of RFC 6749 section 5.2, on the fast path and in Flask."""
    status, document = post(live_server, path, MAX_BODY, chunked=chunked)
    assert (status, document["error"]) == (401, "invalid_client")
    for size in (MAX_BODY + 1, 200_000):
        status, document = post(live_server, path, size, chunked=chunked)
        assert (status, document["error"]) == (413, "invalid_request")
        assert document.keys() == {"error", "error_description"}
