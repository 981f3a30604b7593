"""An organization with an administrator and a reachable receiver, and manual dispatching."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import update

from app.extensions import db
from app.models.audit import OutboxMessage
from app.operations.audit import webhook_deliveries
from app.operations.audit.webhooks import SignedWebhook, create_webhook
from app.operations.store import audit, clock, outbox
from app.operations.store.transactions import transaction
from app.rules.actor import Actor
from tests.support.caches import clear_cached_subscriptions
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
    """An endpoint that the operator allows."""
    monkeypatch.setattr(outbox, "_deliveries", {})
    webhook_deliveries.register_webhook_delivery()
    with receiving() as made:
        monkeypatch.setitem(app.config, "GATEHOUSE", reaching(app.config["GATEHOUSE"], made.server))
        yield made


@pytest.fixture
def hook(ada: Any, receiver: Receiver) -> SignedWebhook:
    """A webhook that subscribes to user events."""
    return create_webhook(ada, {"url": receiver.url, "event_types": ["user.*"]})


@pytest.fixture
def deliver(app: Flask) -> Callable[[], int]:
    """Deliver everything that is due once, and return the number of attempts."""

    def run() -> int:
        tried = 0
        while (message := outbox.claim_due_message(busy_receivers=(), full_organizations=())) is not None:
            outbox.deliver(message)
            tried += 1
        return tried

    return run


@transaction
def occur(actor: Actor) -> None:
    """Record an event that the webhook receives."""
    audit.record(actor, "user.disabled", "user", "usr_x")


def come_round() -> None:
    """Let all delays and leases expire."""

    @transaction
    def act() -> None:
        db.session.execute(update(OutboxMessage).values(available_at=clock.now()))

    act()


def change(model: Any, **values: Any) -> None:
    """Set the values in every row of the model."""

    @transaction
    def act() -> None:
        db.session.execute(update(model).values(**values))

    act()


def ago(**span: float) -> Any:
    """A time in the past."""
    return clock.now() - timedelta(**span)
