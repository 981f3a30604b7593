"""Back-channel logout between processes: a slow, failing or unreachable receiver delays and misses nothing."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
import requests
from joserfc import jwt
from joserfc.jwk import KeySet
from sqlalchemy import update

from app.extensions import db
from app.models.audit import OutboxMessage
from app.operations.store import clock
from app.operations.store.transactions import transaction
from tests.factories import Factory
from tests.journeys.conftest import REDIRECT_URI, SCOPE, VERIFIER, Journey
from tests.support import process
from tests.support.back_channel import listen
from tests.support.databases import MariaDBDatabase
from tests.support.form_browser import FormBrowser
from tests.support.https_server import HttpsServer, Request, Response, https_server
from tests.support.mariadb import MariaDB
from tests.support.servers import LiveServer


class Receiver:
    """A client's own server; ``act`` handles a request."""

    def __init__(self) -> None:
        self.act: Callable[[], Response] = Response
        self.server: HttpsServer

    def __call__(self, _request: Request) -> Response:
        return self.act()

    @property
    def heard(self) -> list[Request]:
        """Return the requests received."""
        return self.server.requests


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    with https_server(made) as server:
        made.server = server
        yield made


@pytest.fixture(scope="module")
def server(mariadb: MariaDB, scratch: Path, worker: str, receiver: Receiver) -> Iterator[LiveServer]:
    """Two workers that trust and can reach the receiver."""
    keys = scratch / "logout-instance"
    keys.mkdir(mode=0o700)
    database = MariaDBDatabase(mariadb, f"logout_{worker}")
    # The receiver fails on purpose.
    settings = receiver.server.settings
    made = LiveServer(
        database, keys, scratch / "logout.log", settings=settings, expected=r"gatehouse\.outbox"
    )
    made.start()
    Factory(made.app).root()
    yield made
    made.stop()


@pytest.fixture
def told(server: LiveServer, receiver: Receiver) -> Journey:
    """A client that receives logout notifications, and its user."""
    make = Factory(server.app)
    organization = make.organization(settings={"oauth": {"signing": {"algorithm": "ES256"}}})
    client = make.client(organization, redirect_uris=[REDIRECT_URI], scopes=SCOPE.split())
    listen(server.app, client, f"{receiver.server.base_url}/out")
    receiver.act = Response
    receiver.heard.clear()
    return Journey(server, make, client, make.user(organization))


def sign_in_and_out(told: Journey) -> tuple[dict[str, Any], float]:
    """Sign in and out; return the tokens and how many seconds signing out took."""
    visitor = FormBrowser(told.server.url)
    session = told.session()
    page = told.authorize(session, visitor)
    tokens = session.fetch_token(
        told.metadata()["token_endpoint"], authorization_response=page.left, code_verifier=VERIFIER
    )
    began = time.monotonic()
    endpoint = told.metadata()["end_session_endpoint"]
    page = visitor.visit(f"{endpoint}?id_token_hint={tokens['id_token']}")
    assert page.has("logged-out"), page.text[:2000]
    return tokens, time.monotonic() - began


def come_round(told: Journey) -> None:
    """Let all retry delays and leases expire."""

    @transaction
    def act() -> None:
        db.session.execute(update(OutboxMessage).values(available_at=clock.now()))

    with told.server.app.app_context():
        act()


def outcomes(told: Journey) -> list[tuple[Any, ...]]:
    return told.server.database.query(
        "SELECT attempts, CAST(outcome AS CHAR) FROM outbox WHERE organization_id = %s ORDER BY id",
        told.client.organization.id.encode(),
    )


def wait_for(condition: Callable[[], object], what: str) -> None:
    process.wait_until(condition, what, seconds=40)


def test_client_is_notified_at_once_with_a_verifiable_token(told: Journey, receiver: Receiver) -> None:
    """SS-8: over a socket, verified by another library; ``logout+jwt`` expires within two minutes."""
    tokens, _ = sign_in_and_out(told)
    wait_for(lambda: outcomes(told) == [(1, "delivered")], "the logout token is delivered")
    [request] = receiver.heard
    [token] = parse_qs(request.body.decode())["logout_token"]
    keys = KeySet.import_key_set(requests.get(told.metadata()["jwks_uri"], timeout=60).json())
    decoded = jwt.decode(token, keys, algorithms=["ES256"])
    logout = decoded.claims
    assert decoded.header["typ"] == "logout+jwt" and logout["exp"] - logout["iat"] <= 120
    id_token = jwt.decode(tokens["id_token"], keys, algorithms=["ES256"]).claims
    assert {name: logout[name] for name in ("iss", "aud", "sub", "sid")} == {
        name: id_token[name] for name in ("iss", "aud", "sub", "sid")
    }


def test_slow_receiver_delays_no_other_request(told: Journey, receiver: Receiver) -> None:
    """F22: neither the page nor other users' tokens."""
    end = threading.Event()
    receiver.act = lambda: Response() if end.wait(60) else Response(500)
    _, seconds = sign_in_and_out(told)
    assert seconds < 40
    wait_for(lambda: receiver.heard, "it is being told")
    began = time.monotonic()
    sign_in_and_out(told)
    assert time.monotonic() - began < 40
    wait_for(lambda: all(attempts for attempts, _ in outcomes(told)), "its time is over")
    end.set()
    receiver.act = Response
    wait_for(lambda: come_round(told) or outcomes(told)[0][1] == "delivered", "it hears in the end")


@pytest.mark.parametrize("status", [500, 404])
def test_failed_delivery_is_retried(told: Journey, receiver: Receiver, status: int) -> None:
    receiver.act = lambda: Response(status)
    sign_in_and_out(told)
    wait_for(lambda: outcomes(told)[0][0], "an attempt has failed")
    receiver.act = Response
    wait_for(lambda: come_round(told) or outcomes(told)[0][1] == "delivered", "it hears in the end")


def test_killed_worker_loses_no_delivery(told: Journey, receiver: Receiver) -> None:
    """F10, P5: the receiver got the request but the worker died; another worker sends it again."""
    end = threading.Event()
    receiver.act = lambda: Response() if end.wait(60) else Response(500)
    sign_in_and_out(told)
    wait_for(lambda: receiver.heard, "it is being told")
    for pid in told.server.worker_pids():
        os.kill(pid, signal.SIGKILL)
    receiver.act = Response
    process.wait_until(lambda: len(told.server.worker_pids()) == 2, "new workers", seconds=30)
    assert [outcome for _, outcome in outcomes(told)] == [None], "not lost, and not taken for done"
    wait_for(lambda: come_round(told) or outcomes(told)[0][1] == "delivered", "it hears in the end")
    end.set()
    assert len(receiver.heard) >= 2


def test_pending_delivery_survives_a_restart(told: Journey, receiver: Receiver) -> None:
    """F20: a receiver that is down during the restart is notified afterwards."""
    receiver.act = lambda: Response(503)
    sign_in_and_out(told)
    wait_for(lambda: receiver.heard, "it was asked")
    told.server.stop()
    receiver.act = Response
    receiver.heard.clear()
    told.server.start()
    wait_for(lambda: come_round(told) or outcomes(told)[0][1] == "delivered", "it hears in the end")
    assert len(receiver.heard) == 1
