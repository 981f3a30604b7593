"""Webhooks between processes: a slow, failing or unreachable endpoint delays and misses nothing."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
from sqlalchemy import update

from app.extensions import db
from app.models.audit import OutboxMessage
from app.operations.store import clock
from app.operations.store.transactions import transaction
from tests.factories import Factory, bearer_header
from tests.support import process
from tests.support.databases import MariaDBDatabase
from tests.support.https_server import Response
from tests.support.mariadb import MariaDB
from tests.support.servers import LiveServer
from tests.support.webhook_receiver import Receiver, receiving


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


@pytest.fixture(scope="module")
def server(mariadb: MariaDB, scratch: Path, worker: str, receiver: Receiver) -> Iterator[LiveServer]:
    """Two workers that trust and can reach the receiver."""
    keys = scratch / "webhooks-instance"
    keys.mkdir(mode=0o700)
    database = MariaDBDatabase(mariadb, f"webhooks_{worker}")
    # The receiver fails on purpose.
    settings = receiver.server.settings
    made = LiveServer(
        database, keys, scratch / "webhooks.log", settings=settings, expected=r"gatehouse\.outbox"
    )
    made.start()
    Factory(made.app).root()
    yield made
    made.stop()


@dataclass(frozen=True, slots=True)
class Told:
    """An organization with a webhook for its clients; ``secret`` is the signing secret."""

    server: LiveServer
    organization: Any
    headers: dict[str, str]
    secret: str

    def happen(self) -> float:
        """Register a client; return how many seconds the response took."""
        began = time.monotonic()
        body = {"name": "New", "redirect_uris": ["https://new.example/cb"]}
        answer = requests.post(f"{self.server.url}/clients", json=body, headers=self.headers, timeout=60)
        assert answer.status_code == 201, answer.text
        return time.monotonic() - began

    def statuses(self) -> list[str]:
        """Return the status of each delivery, oldest first."""
        rows = self.server.database.query(
            "SELECT CAST(status AS CHAR), attempts FROM webhook_deliveries WHERE organization_id = %s ORDER BY id",
            self.organization.id.encode(),
        )
        return ["retrying" if status == "pending" and attempts else status for status, attempts in rows]

    def come_round(self) -> None:
        """Let all retry delays and leases expire."""

        @transaction
        def act() -> None:
            db.session.execute(update(OutboxMessage).values(available_at=clock.now()))

        with self.server.app.app_context():
            act()


@pytest.fixture
def told(server: LiveServer, receiver: Receiver) -> Told:
    make = Factory(server.app)
    organization = make.organization()
    token = make.machine(organization)
    form = {"grant_type": "client_credentials"}
    issued = requests.post(f"{server.url}/oauth/token", data=form, headers=token.basic, timeout=60).json()
    headers = bearer_header(issued["access_token"])
    receiver.act = Response
    receiver.heard.clear()
    body = {"url": receiver.url, "event_types": ["client.registered"]}
    made = requests.post(f"{server.url}/webhooks", json=body, headers=headers, timeout=60)
    assert made.status_code == 201, made.text
    secret = made.json()["data"]["signing_secret"]
    return Told(server, organization, headers, secret)


def wait_for(condition: Callable[[], object], what: str) -> None:
    process.wait_until(condition, what, seconds=20)


def test_event_is_delivered_at_once_from_every_worker(told: Told, receiver: Receiver) -> None:
    """The webhook was created on one worker."""
    for _ in range(6):
        told.happen()
    wait_for(lambda: len(receiver.heard) == 6, "all are heard")
    assert {event["type"] for event in receiver.events(told.secret)} == {"client.registered"}
    wait_for(lambda: told.statuses() == ["delivered"] * 6, "and noted")


def test_slow_endpoint_delays_no_other_request(told: Told, receiver: Receiver) -> None:
    """F22, SF-4: neither the change it reports nor other users' tokens."""
    end = threading.Event()
    receiver.act = lambda: Response() if end.wait(20) else Response(500)
    assert told.happen() < 2
    wait_for(lambda: receiver.heard, "it is being told")
    assert told.happen() < 2
    wait_for(lambda: "retrying" in told.statuses(), "its time is over")
    end.set()
    receiver.act = Response
    wait_for(lambda: told.come_round() or told.statuses() == ["delivered"] * 2, "it hears in the end")


def test_killed_worker_loses_no_delivery(told: Told, receiver: Receiver) -> None:
    """P5: the endpoint got the request but the worker died; another worker sends it again with the same id."""
    end = threading.Event()
    receiver.act = lambda: Response() if end.wait(20) else Response(500)
    told.happen()
    wait_for(lambda: receiver.heard, "it is being told")
    for pid in told.server.worker_pids():
        os.kill(pid, signal.SIGKILL)
    receiver.act = Response
    process.wait_until(lambda: len(told.server.worker_pids()) == 2, "new workers", seconds=30)
    assert told.statuses() == ["pending"], "not lost, and not taken for done"
    wait_for(lambda: told.come_round() or told.statuses() == ["delivered"], "it hears in the end")
    end.set()
    assert len({request.headers["webhook-id"] for request in receiver.heard}) == 1 < len(receiver.heard)


def test_pending_delivery_survives_a_restart(told: Told, receiver: Receiver) -> None:
    """F20: an endpoint that is down during the restart is notified afterwards."""
    receiver.act = lambda: Response(503)
    told.happen()
    wait_for(lambda: receiver.heard, "it was asked")
    told.server.stop()
    receiver.act = Response
    receiver.heard.clear()
    told.server.start()
    wait_for(lambda: told.come_round() or told.statuses() == ["delivered"], "it hears in the end")
    assert len(receiver.events(told.secret)) == 1
