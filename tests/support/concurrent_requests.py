"""Many threads that send at the same moment, each on its own connection."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from tests.support.process import WORKER_HEADER

TIMEOUT_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Post:
    """A request: form fields, or a JSON document or an upload if ``json`` or ``upload`` is given."""

    path: str
    form: dict[str, str] | Sequence[tuple[str, str]] | None = None
    headers: dict[str, str] | None = None
    json: Any = None
    method: str = "POST"
    upload: bytes | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """A response and the process id of the worker that sent it, 0 if the server does not tell it."""

    status: int
    body: bytes
    worker: int
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        """Return the body as JSON."""
        return json.loads(self.body)


def send_concurrently(server: str, posts: Sequence[Post], *, attempts: int = 5) -> list[Reply]:
    """Send the requests at once, after all are connected, and return the replies.

    As clients do, send those again that an overloaded service answered with 503 and Retry-After.
    """
    gate = threading.Barrier(len(posts))

    def one(request: Post) -> Reply:
        connection = _connected(server)
        gate.wait(TIMEOUT_SECONDS)
        reply = _exchange(connection, request)
        for _ in range(attempts - 1):
            if reply.status != 503 or "retry-after" not in reply.headers:
                break
            time.sleep(1)
            reply = send(server, request)
        return reply

    with ThreadPoolExecutor(len(posts)) as pool:
        return list(pool.map(one, posts))


def send(server: str, request: Post, *, timeout: float = TIMEOUT_SECONDS) -> Reply:
    """Send one request on a new connection and return the reply."""
    return _exchange(_connected(server, timeout), request)


def replies_of_every_worker(server: str, request: Post, workers: Sequence[int]) -> list[Reply]:
    """Send the request on new connections until each worker has answered it."""
    replies: list[Reply] = []
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        replies.append(send(server, request))
        if {reply.worker for reply in replies} >= set(workers):
            return replies
    raise AssertionError(f"of {list(workers)} only {sorted({reply.worker for reply in replies})} answered")


def _connected(server: str, timeout: float = TIMEOUT_SECONDS) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection(urlsplit(server).netloc, timeout=timeout)
    connection.connect()
    return connection


def _exchange(connection: http.client.HTTPConnection, request: Post) -> Reply:
    body: str | bytes
    if request.upload is not None:
        body, kind = request.upload, "image/png"
    elif request.json is not None:
        body, kind = json.dumps(request.json), "application/json"
    else:
        body, kind = urlencode(request.form or {}), "application/x-www-form-urlencoded"
    try:
        connection.request(
            request.method, request.path, body, {"Content-Type": kind, **(request.headers or {})}
        )
        answer = connection.getresponse()
        headers = {name.lower(): value for name, value in answer.getheaders()}
        return Reply(answer.status, answer.read(), int(headers.get(WORKER_HEADER.lower(), 0)), headers)
    finally:
        connection.close()
