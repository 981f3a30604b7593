"""A webhook endpoint that verifies events with the independent Standard Webhooks library."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from standardwebhooks import Webhook as Verifier

from tests.support.https_server import HttpsServer, Request, Response, https_server


class Receiver:
    """A server on the loopback interface; ``act`` handles a request."""

    def __init__(self) -> None:
        self.act: Callable[[], Response] = Response
        self.server: HttpsServer

    def __call__(self, _request: Request) -> Response:
        return self.act()

    @property
    def url(self) -> str:
        """Return its URL."""
        return f"{self.server.base_url}/hooks?tenant=1"

    @property
    def heard(self) -> list[Request]:
        """Return the requests received."""
        return self.server.requests

    def events(self, secret: str) -> list[dict[str, Any]]:
        """Return the received events, each verified with the secret."""
        return [verified(request, secret) for request in self.heard]


def verified(request: Request, secret: str) -> dict[str, Any]:
    """Return the event of a request signed with the secret; raises WebhookVerificationError otherwise."""
    assert (request.method, request.path) == ("POST", "/hooks?tenant=1")
    assert request.headers["content-type"] == "application/json"
    event = Verifier(secret).verify(request.body, dict(request.headers))
    assert event == json.loads(request.body)
    return dict(event)


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Run a receiver that answers 200."""
    made = Receiver()
    with https_server(made) as server:
        made.server = server
        yield made
