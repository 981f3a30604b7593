"""Back-channel logout between processes: a receiver that is slow, wrong or gone delays nobody and misses nothing."""

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
from app.models.event import OutboxMessage
from app.operations.store import clock
from app.operations.store.transactions import transaction
from tests.factories import Factory
from tests.journeys.conftest import REDIRECT_URI, SCOPE, VERIFIER, Journey
from tests.support import process
from tests.support.back_channel import listen
from tests.support.databases import MariaDBDatabase
from tests.support.https_server import HttpsServer, Request, Response, https_server
from tests.support.mariadb import MariaDB
from tests.support.person import Person
from tests.support.servers import LiveServer


class Receiver:
    """A client's own server; ``act`` is what it does with a request."""

    def __init__(self) -> None:
        self.act: Callable[[], Response] = Response
        self.server: HttpsServer

    def __call__(self, _request: Request) -> Response:
        return self.act()

    @property
    def heard(self) -> list[Request]:
        """The requests so far."""
        return self.server.requests


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    with https_server(made) as server:
        made.server = server
        yield made


@pytest.fixture(scope="module")
def server(mariadb: MariaDB, scratch: Path, worker: str, receiver: Receiver) -> Iterator[LiveServer]:
    """Two workers that believe and reach the receiver."""
    keys = scratch / "logout-instance"
    keys.mkdir(mode=0o700)
    database = MariaDBDatabase(mariadb, f"logout_{worker}")
    # The receiver refuses what it is told to refuse.
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
    """A client that listens, and a user who will sign in to it."""
    make = Factory(server.app)
    organization = make.organization(settings={"oauth": {"signing": {"algorithm": "ES256"}}})
    client = make.client(organization, redirect_uris=[REDIRECT_URI], scopes=SCOPE.split())
    listen(server.app, client, f"{receiver.server.base_url}/out")
    receiver.act = Response
    receiver.heard.clear()
    return Journey(server, make, client, make.user(organization))


def sign_in_and_out(told: Journey) -> tuple[dict[str, Any], float]:
    """The tokens of a sign-in that has ended since, and how many seconds its end took."""
    person = Person(told.server.url)
    session = told.session()
    page = told.authorize(session, person)
    tokens = session.fetch_token(
        told.metadata()["token_endpoint"], authorization_response=page.left, code_verifier=VERIFIER
    )
    began = time.monotonic()
    endpoint = told.metadata()["end_session_endpoint"]
    page = person.visit(f"{endpoint}?id_token_hint={tokens['id_token']}")
    assert page.has("logged-out"), page.text[:2000]
    return tokens, time.monotonic() - began


def come_round(told: Journey) -> None:
    """All pauses and leases are over."""

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
    process.wait_until(condition, what, seconds=15)


def test_the_client_hears_at_once_and_can_verify_what_it_hears(told: Journey, receiver: Receiver) -> None:
    """SS-8: over a socket, by another library, ``logout+jwt`` that ends within two minutes."""
    tokens, _ = sign_in_and_out(told)
    wait_for(lambda: outcomes(told) == [(1, "delivered")], "the logout token is delivered")
    [request] = receiver.heard
    [token] = parse_qs(request.body.decode())["logout_token"]
    keys = KeySet.import_key_set(requests.get(told.metadata()["jwks_uri"], timeout=10).json())
    decoded = jwt.decode(token, keys, algorithms=["ES256"])
    logout = decoded.claims
    assert decoded.header["typ"] == "logout+jwt" and logout["exp"] - logout["iat"] <= 120
    id_token = jwt.decode(tokens["id_token"], keys, algorithms=["ES256"]).claims
    assert {name: logout[name] for name in ("iss", "aud", "sub", "sid")} == {
        name: id_token[name] for name in ("iss", "aud", "sub", "sid")
    }


def test_a_slow_receiver_delays_nobody(told: Journey, receiver: Receiver) -> None:
    """F22: the page does not wait, and neither do other people's tokens. protocol: back-channel logout, delivery."""
    end = threading.Event()
    receiver.act = lambda: Response() if end.wait(20) else Response(500)
    _, seconds = sign_in_and_out(told)
    assert seconds < 2
    wait_for(lambda: receiver.heard, "it is being told")
    began = time.monotonic()
    sign_in_and_out(told)
    assert time.monotonic() - began < 5
    wait_for(lambda: all(attempts for attempts, _ in outcomes(told)), "its time is over")
    end.set()
    receiver.act = Response
    wait_for(lambda: come_round(told) or outcomes(told)[0][1] == "delivered", "it hears in the end")


@pytest.mark.parametrize("status", [500, 404])
def test_a_wrong_answer_is_not_the_last_word(told: Journey, receiver: Receiver, status: int) -> None:
    receiver.act = lambda: Response(status)
    sign_in_and_out(told)
    wait_for(lambda: len(receiver.heard) == 1, "it was asked")
    receiver.act = Response
    wait_for(lambda: come_round(told) or outcomes(told)[0][1] == "delivered", "it hears in the end")


def test_a_killed_worker_loses_nothing(told: Journey, receiver: Receiver) -> None:
    """F10, P5: the receiver has the request and nobody the answer; another worker tells it again."""
    end = threading.Event()
    receiver.act = lambda: Response() if end.wait(20) else Response(500)
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


def test_what_waits_outlives_the_server(told: Journey, receiver: Receiver) -> None:
    """F20: a receiver that is down while the service is restarted hears afterwards."""
    receiver.act = lambda: Response(503)
    sign_in_and_out(told)
    wait_for(lambda: receiver.heard, "it was asked")
    told.server.stop()
    receiver.act = Response
    receiver.heard.clear()
    told.server.start()
    wait_for(lambda: come_round(told) or outcomes(told)[0][1] == "delivered", "it hears in the end")
    assert len(receiver.heard) == 1
