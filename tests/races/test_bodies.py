"""Bodies of the wire on a real server: as long as allowed, longer, and without a length."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from app.oauth.call import LONGEST_BODY
from tests.support.servers import LiveServer

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
PATHS = pytest.mark.parametrize("path", ["/oauth/token", "/oauth/introspect", "/oauth/revoke"])
START = b"grant_type=client_credentials&token="


def post(server: LiveServer, path: str, size: int, *, chunked: bool) -> tuple[int, dict[str, str]]:
    """(status, document) of the answer to a form of so many bytes."""
    whole = START + b"x" * (size - len(START))

    def pieces() -> Iterator[bytes]:
        for begin in range(0, len(whole), 4096):
            yield whole[begin : begin + 4096]

    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=10)
    connection.request("POST", path, pieces() if chunked else whole, FORM, encode_chunked=chunked)
    answer = connection.getresponse()
    document = json.loads(answer.read())
    connection.close()
    return answer.status, document


@PATHS
@pytest.mark.parametrize("chunked", [False, True], ids=["with a length", "chunked"])
def test_a_body_is_bounded_with_and_without_a_length(
    live_server: LiveServer, path: str, chunked: bool
) -> None:
    """JS-2: the refusal has the form of RFC 6749 section 5.2, in the lane's place and in Flask's."""
    status, document = post(live_server, path, LONGEST_BODY, chunked=chunked)
    assert (status, document["error"]) == (401, "invalid_client")
    for size in (LONGEST_BODY + 1, 200_000):
        status, document = post(live_server, path, size, chunked=chunked)
        assert (status, document["error"]) == (413, "invalid_request")
        assert document.keys() == {"error", "error_description"}
