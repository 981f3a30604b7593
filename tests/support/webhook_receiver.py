"""An endpoint of an organization: it verifies what it is told by the independent library of Standard Webhooks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from standardwebhooks import Webhook as Verifier

from tests.support.https_server import HttpsServer, Request, Response, https_server


class Receiver:
    """A server on the loopback interface; ``act`` is what it does with a request."""

    def __init__(self) -> None:
        self.act: Callable[[], Response] = Response
        self.server: HttpsServer

    def __call__(self, _request: Request) -> Response:
        return self.act()

    @property
    def url(self) -> str:
        """Where it hears."""
        return f"{self.server.base_url}/hooks?tenant=1"

    @property
    def heard(self) -> list[Request]:
        """The requests so far."""
        return self.server.requests

    def events(self, secret: str) -> list[dict[str, Any]]:
        """What it was told, each verified by the secret."""
        return [verified(request, secret) for request in self.heard]


def verified(request: Request, secret: str) -> dict[str, Any]:
    """The event of a request that the secret signed; raises WebhookVerificationError for any other."""
    assert (request.method, request.path) == ("POST", "/hooks?tenant=1")
    assert request.headers["content-type"] == "application/json"
    event = Verifier(secret).verify(request.body, dict(request.headers))
    assert event == json.loads(request.body)
    return dict(event)


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver that answers 200."""
    made = Receiver()
    with https_server(made) as server:
        made.server = server
        yield made
