"""Fixtures: the application with a mail server, outbox delivery by hand, and a valid request to each route."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from flask import Flask

from app.operations.mail import delivery
from app.operations.store import outbox
from app.operations.users import erased_labels, password_resets, registrations
from tests.factories import Factory
from tests.support.applications import forget
from tests.support.cut_connections import cuttable
from tests.support.databases import Database, Rows
from tests.support.mail_server import Mailbox, mail_server, mailing
from tests.support.stored_state import StateKeeper
from tests.support.valid_requests import Requests


@pytest.fixture
def box(app: Flask, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mailbox]:
    """The mail server that the application uses."""
    with mail_server() as made:
        monkeypatch.setitem(app.config, "GATEHOUSE", mailing(app.config["GATEHOUSE"], made.server()))
        yield made


@pytest.fixture
def deliver(app: Flask, box: Mailbox) -> Callable[[], int]:
    """Deliver everything that is due and return the number of messages attempted."""
    delivery.register()
    password_resets.register_recovery_delivery()
    registrations.register_registration_delivery()
    erased_labels.register()

    def run() -> int:
        tried = 0
        with app.app_context():
            while (message := outbox.claim_due_message(busy_receivers=(), full_organizations=())) is not None:
                outbox.deliver(message)
                tried += 1
        return tried

    return run


@pytest.fixture(scope="session")
def _worlds() -> dict[str, tuple[Requests, Rows]]:
    """By URL of a database: the organization of the requests, and the rows when it was made."""
    return {}


@pytest.fixture
def requests(
    app: Flask,
    database: Database,
    make: Factory,
    box: Mailbox,
    deliver: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
    _worlds: dict[str, tuple[Requests, Rows]],
) -> Requests:
    """A valid request to each route, in an organization that is made once for all tests; without CSRF protection."""
    monkeypatch.setitem(app.config, "WTF_CSRF_ENABLED", False)
    if database.url not in _worlds:
        _worlds[database.url] = Requests(app, make, box, deliver), database.rows()
    made, rows = _worlds[database.url]
    database.clean(to=rows)
    forget(app)
    return made.again(make, box, deliver)


@pytest.fixture
def keeper(app: Flask, database: Database) -> Iterator[StateKeeper]:
    """Puts back what requests of the application have changed."""
    with cuttable(app) as cuts:
        yield StateKeeper(database, cuts)
