"""Fixtures: the application with a mail server, and outbox delivery by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from flask import Flask

from app.operations.mail import delivery
from app.operations.store import outbox
from app.operations.users import erased_labels, password_resets, registrations
from tests.support.mail_server import Mailbox, mail_server, mailing


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
