"""Concurrent requests about webhooks and leaks: an event is redelivered once, a leak is recorded once."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest
from flask import Flask
from sqlalchemy import update

from app.extensions import db
from app.models.audit import OutboxMessage
from app.operations.audit import webhook_deliveries, webhooks
from app.operations.audit.leaked_secrets import report_leaks
from app.operations.audit.webhook_deliveries import redeliver, send_test
from app.operations.audit.webhooks import create_webhook
from app.operations.store import clock, outbox
from app.operations.store.transactions import transaction
from app.rules.actor import Actor
from tests.factories import Factory
from tests.oauth.conftest import audited
from tests.support.caches import clear_cached_subscriptions
from tests.support.databases import Database
from tests.support.https_server import reaching
from tests.support.threads import at_once
from tests.support.webhook_receiver import Receiver, receiving

CROWD = 15
pytestmark = pytest.mark.mariadb


@pytest.fixture
def receiver(app: Flask, monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    clear_cached_subscriptions()
    monkeypatch.setattr(outbox, "_deliveries", {})
    webhook_deliveries.register_webhook_delivery()
    with receiving() as made:
        monkeypatch.setitem(app.config, "GATEHOUSE", reaching(app.config["GATEHOUSE"], made.server))
        yield made


def deliver(app: Flask) -> None:
    with app.app_context():
        while (message := outbox.claim_due_message(busy_receivers=(), full_organizations=())) is not None:
            outbox.deliver(message)


def come_round(app: Flask) -> None:
    """Expire the lease of every message, as if its worker had died."""

    @transaction
    def act() -> None:
        db.session.execute(update(OutboxMessage).values(available_at=clock.now()))

    with app.app_context():
        act()


def test_concurrent_redeliveries_send_one_delivery(
    app: Flask, make: Factory, receiver: Receiver, database: Database
) -> None:
    acme = make.organization()
    ada = make.actor(acme)
    with app.app_context():
        hook = create_webhook(ada, {"url": receiver.url, "event_types": ["user.*"]})
        sent = send_test(ada, hook.record.public_id).public_id
    deliver(app)
    again = functools.partial(redeliver, ada, hook.record.public_id, sent)
    results = at_once(app, [again] * CROWD)
    assert len(results) == CROWD
    for _ in range(3):
        deliver(app)
        come_round(app)
    assert len(receiver.events(hook.secret)) == 2, "once at first, once again"
    assert database.query("SELECT COUNT(*) FROM outbox WHERE done_at IS NULL") == [(0,)]


def test_concurrent_leak_reports_are_recorded_once(app: Flask, make: Factory, database: Database) -> None:
    make.root()
    acme = make.organization()
    stranger = Actor.anonymous("", "192.0.2.9")
    for number in range(3):
        client = make.client(acme)
        session = make.sign_in(make.user(acme)).token
        for secret in (client.secret, session):
            act = functools.partial(report_leaks, stranger, [{"token": secret}])
            assert at_once(app, [act] * CROWD) == ["int"] * CROWD
        assert audited(database, "secret.leak_reported") == 2 * (number + 1)
        assert audited(database, "credential.revoked") == number + 1


def test_concurrent_webhook_creation_respects_the_limit(
    app: Flask, make: Factory, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "MAX_WEBHOOKS_PER_ORGANIZATION", 4)
    ada = make.actor(make.organization())
    body = {"url": "https://hooks.example/", "event_types": ["user.*"]}
    results = at_once(app, [functools.partial(create_webhook, ada, body)] * CROWD)
    assert sorted(results) == ["Conflict"] * (CROWD - 4) + ["SignedWebhook"] * 4
    assert database.count("webhooks") == 4
