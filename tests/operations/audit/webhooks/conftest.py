"""An organization with an administrator, a receiver that it may reach, and the dispatcher's work done by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import update

from app.extensions import db
from app.models.event import OutboxMessage
from app.operations.audit import webhook_deliveries
from app.operations.audit.webhook_publishing import clear_cached_subscriptions
from app.operations.audit.webhooks import SignedWebhook, create_webhook
from app.operations.store import clock, outbox
from app.operations.store.transactions import transaction
from tests.support.https_server import reaching
from tests.support.webhook_receiver import Receiver, receiving


@pytest.fixture
def acme(make: Any) -> Any:
    clear_cached_subscriptions()
    return make.organization("acme", name="Acme")


@pytest.fixture
def ada(make: Any, acme: Any) -> Any:
    """An administrator."""
    return make.actor(acme, user=make.user(acme, role="admin"))


@pytest.fixture
def receiver(app: Flask, monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """An endpoint at an address that the operator allowed."""
    monkeypatch.setattr(outbox, "_deliveries", {})
    webhook_deliveries.register_webhook_delivery()
    with receiving() as made:
        monkeypatch.setitem(app.config, "GATEHOUSE", reaching(app.config["GATEHOUSE"], made.server))
        yield made


@pytest.fixture
def hook(ada: Any, receiver: Receiver) -> SignedWebhook:
    """A webhook that is told of users."""
    return create_webhook(ada, {"url": receiver.url, "event_types": ["user.*"]})


@pytest.fixture
def deliver(app: Flask) -> Callable[[], int]:
    """Everything that is due is tried once; returns how many attempts that were."""

    def run() -> int:
        tried = 0
        while (message := outbox.claim_due_message(busy_receivers=(), full_organizations=())) is not None:
            outbox.deliver(message)
            tried += 1
        return tried

    return run


def come_round() -> None:
    """All pauses and leases are over."""

    @transaction
    def act() -> None:
        db.session.execute(update(OutboxMessage).values(available_at=clock.now()))

    act()


def change(model: Any, **values: Any) -> None:
    """Every row of the model has the values."""

    @transaction
    def act() -> None:
        db.session.execute(update(model).values(**values))

    act()


def ago(**span: float) -> Any:
    """A time in the past."""
    return clock.now() - timedelta(**span)
