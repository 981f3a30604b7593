"""Deliveries of webhooks: retries, manual redelivery, rate limits and permissions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import select

from app.extensions import db
from app.models.audit import OutboxMessage, WebhookDelivery
from app.operations.audit import webhook_deliveries
from app.operations.audit.webhook_deliveries import get_delivery, list_deliveries, redeliver, send_test
from app.operations.audit.webhooks import SignedWebhook, create_webhook
from app.rules.errors import NotFound, TooManyRequests
from tests.operations.audit.webhooks.conftest import ago, change, occur
from tests.support.databases import Database
from tests.support.https_server import Response
from tests.support.webhook_receiver import Receiver

pytestmark = pytest.mark.usefixtures("context")
Deliver = Callable[[], int]


def told(actor: Any, hook: SignedWebhook) -> Any:
    """Return the only delivery of the webhook."""
    [found] = list_deliveries(actor, hook.record.public_id).items
    return found


def test_retries_end_after_three_days(
    ada: Any, hook: SignedWebhook, receiver: Receiver, deliver: Deliver
) -> None:
    receiver.act = lambda: Response(500)
    send_test(ada, hook.record.public_id)
    change(OutboxMessage, expires_at=ago(seconds=-5))
    assert deliver() == 1
    found = told(ada, hook)
    assert (found.status, found.next_attempt_at) == ("failed", None)
    receiver.act = Response
    again = redeliver(ada, hook.record.public_id, found.public_id)
    assert (again.status, again.attempts, again.is_due) == ("pending", 1, True), "not tried since"
    assert deliver() == 1
    assert told(ada, hook).status == "delivered"
    first, second = receiver.heard
    assert first.headers["webhook-id"] == second.headers["webhook-id"] and first.body == second.body


def test_redeliver_sends_again_and_makes_pending_due(
    ada: Any, hook: SignedWebhook, receiver: Receiver, deliver: Deliver, database: Database
) -> None:
    sent = send_test(ada, hook.record.public_id)
    deliver()
    redeliver(ada, hook.record.public_id, sent.public_id)
    redeliver(ada, hook.record.public_id, sent.public_id)
    assert deliver() == 1, "one that waits is not sent twice"
    receiver.act = lambda: Response(503)
    redeliver(ada, hook.record.public_id, sent.public_id)
    deliver()
    change(OutboxMessage, available_at=ago(hours=-1))
    assert deliver() == 0
    redeliver(ada, hook.record.public_id, sent.public_id)
    assert deliver() == 1
    assert database.count("webhook_deliveries") == 1


def test_manual_deliveries_are_sent_although_others_fail(
    ada: Any, hook: SignedWebhook, receiver: Receiver, deliver: Deliver
) -> None:
    sent = send_test(ada, hook.record.public_id)
    deliver()
    receiver.act = lambda: Response(503)
    occur(ada)
    occur(ada)
    redeliver(ada, hook.record.public_id, sent.public_id)
    send_test(ada, hook.record.public_id)
    assert deliver() == 3, "the second event waits with the first one"
    change(OutboxMessage, available_at=ago(hours=-1))
    receiver.act = Response
    send_test(ada, hook.record.public_id)
    assert deliver() == 5, "a test that is received shows that the endpoint is up"


def test_delivery_that_is_sent_again_is_kept_while_it_is_retried(
    ada: Any, hook: SignedWebhook, deliver: Deliver, database: Database
) -> None:
    sent = send_test(ada, hook.record.public_id)
    deliver()
    [(first,)] = database.query("SELECT expires_at FROM webhook_deliveries")
    redeliver(ada, hook.record.public_id, sent.public_id)
    deliver()
    assert database.query("SELECT expires_at FROM webhook_deliveries") == [(first,)], "it is long enough"
    change(WebhookDelivery, expires_at=ago(minutes=-1))
    redeliver(ada, hook.record.public_id, sent.public_id)
    assert db.session.scalars(select(WebhookDelivery.expires_at)).one() > ago(days=-3)


def test_manual_deliveries_are_rate_limited(
    ada: Any, hook: SignedWebhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_deliveries, "MAX_MANUAL_DELIVERIES_PER_HOUR", 3)
    for _ in range(3):
        send_test(ada, hook.record.public_id)
    with pytest.raises(TooManyRequests):
        send_test(ada, hook.record.public_id)


def test_delivery_body_requires_audit_read(make: Any, acme: Any, ada: Any, hook: SignedWebhook) -> None:
    sent = send_test(ada, hook.record.public_id)
    assert get_delivery(ada, hook.record.public_id, sent.public_id).body is not None
    looker = make.actor(acme, "webhooks:read")
    assert get_delivery(looker, hook.record.public_id, sent.public_id).body is None


def test_delivery_is_found_only_under_its_webhook(ada: Any, hook: SignedWebhook, receiver: Receiver) -> None:
    other = create_webhook(ada, {"url": receiver.url, "event_types": ["*"]})
    sent = send_test(ada, hook.record.public_id)
    with pytest.raises(NotFound):
        get_delivery(ada, other.record.public_id, sent.public_id)
