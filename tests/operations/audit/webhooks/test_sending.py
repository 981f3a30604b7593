"""Sending to endpoints: signatures, retries, outgoing request rules and responses."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import select
from standardwebhooks.webhooks import WebhookVerificationError

from app.extensions import db
from app.models.audit import OutboxMessage, Webhook, WebhookDelivery
from app.operations.audit import webhooks
from app.operations.audit.audit_events import list_audit_events
from app.operations.audit.webhook_deliveries import get_delivery, list_deliveries, redeliver, send_test
from app.operations.audit.webhooks import (
    SignedWebhook,
    create_webhook,
    delete_webhook,
    get_webhook,
    rotate_webhook_secret,
    update_webhook,
)
from app.operations.mail import delivery
from app.operations.organizations.organizations import update_organization
from app.operations.store import clock, outbox
from app.rules.errors import Conflict
from tests.operations.audit.webhooks.conftest import ago, change, come_round, occur
from tests.support.databases import Database
from tests.support.https_server import Response
from tests.support.mail_server import Mailbox, mail_server, mailing, plain
from tests.support.webhook_receiver import Receiver, verified

pytestmark = pytest.mark.usefixtures("context")
Deliver = Callable[[], int]


def told(actor: Any, hook: SignedWebhook) -> Any:
    """Return the only delivery of the webhook."""
    [found] = list_deliveries(actor, hook.record.public_id).items
    return found


def test_signature_verifies_with_the_standard_library(
    ada: Any, hook: SignedWebhook, receiver: Receiver, deliver: Deliver
) -> None:
    """Standard Webhooks: three headers, and the HMAC over id, timestamp and body."""
    sent = send_test(ada, hook.record.public_id)
    assert receiver.heard == [], "sent in the background"
    assert deliver() == 1
    [request] = receiver.heard
    assert request.headers["webhook-id"] == sent.public_id
    assert abs(int(request.headers["webhook-timestamp"]) - time.time()) < 10
    event = verified(request, hook.secret)
    assert event["type"] == "webhook.test" and event["data"]["webhook_id"] == hook.record.public_id
    with pytest.raises(WebhookVerificationError):
        verified(dataclasses.replace(request, body=request.body + b" "), hook.secret)
    found = told(ada, hook)
    assert (found.status, found.attempts, found.response_status) == ("delivered", 1, 200)
    assert found.duration_ms is not None and found.next_attempt_at is None
    assert deliver() == 0


def test_both_secrets_verify_during_rotation(
    ada: Any, hook: SignedWebhook, receiver: Receiver, deliver: Deliver
) -> None:
    rotated = rotate_webhook_secret(ada, hook.record.public_id, {})
    send_test(ada, hook.record.public_id)
    deliver()
    [request] = receiver.heard
    assert len(request.headers["webhook-signature"].split(" ")) == 2
    assert verified(request, hook.secret) == verified(request, rotated.secret)
    change(Webhook, previous_secret_until=ago(seconds=1))
    send_test(ada, hook.record.public_id)
    deliver()
    verified(receiver.heard[1], rotated.secret)
    with pytest.raises(WebhookVerificationError):
        verified(receiver.heard[1], hook.secret)


@pytest.mark.parametrize("status", [500, 503, 404, 401, 302, 429])
def test_failed_response_is_retried_and_other_events_wait(
    ada: Any, hook: SignedWebhook, receiver: Receiver, deliver: Deliver, status: int
) -> None:
    """Redirects are not followed, and the second attempt has the same ``webhook-id`` and body."""
    receiver.act = lambda: Response(status, headers={"Location": f"{receiver.server.base_url}/elsewhere"})
    occur(ada)
    occur(ada)
    assert deliver() == 1, "a receiver that fails is asked once, not once for each event"
    tried = next(one for one in list_deliveries(ada, hook.record.public_id).items if one.attempts)
    assert (tried.status, tried.response_status) == ("retrying", status)
    assert (
        tried.failure == f"The endpoint responded with status {status}." and tried.next_attempt_at is not None
    )
    assert get_webhook(ada, hook.record.public_id).failing_since is not None
    receiver.act = Response
    come_round()
    assert deliver() == 2
    ids = [(request.headers["webhook-id"], request.body) for request in receiver.heard]
    assert ids[0] in ids[1:] and len(ids) == 3
    assert get_webhook(ada, hook.record.public_id).failing_since is None
    receiver.events(hook.secret)


@pytest.mark.parametrize("status", [400, 422])
def test_endpoint_that_rejects_one_event_receives_others(
    ada: Any, hook: SignedWebhook, receiver: Receiver, deliver: Deliver, status: int
) -> None:
    answers = [Response(status), Response(200)]
    receiver.act = lambda: answers.pop(0)
    send_test(ada, hook.record.public_id)
    send_test(ada, hook.record.public_id)
    assert deliver() == 2
    found = list_deliveries(ada, hook.record.public_id).items
    assert sorted(one.status for one in found) == ["delivered", "retrying"]


def test_410_disables_the_webhook(
    ada: Any, hook: SignedWebhook, receiver: Receiver, deliver: Deliver
) -> None:
    receiver.act = lambda: Response(410)
    send_test(ada, hook.record.public_id)
    send_test(ada, hook.record.public_id)
    assert deliver() == 1
    assert len(receiver.heard) == 1, "what waited is not sent any more"
    record = get_webhook(ada, hook.record.public_id)
    assert (record.status, record.disabled_because) == ("disabled", "gone")
    assert {one.status for one in list_deliveries(ada, hook.record.public_id).items} == {"failed"}
    [event] = list_audit_events(ada, filters={"action": "webhook.disabled"}).items
    assert event.after == {"because": "gone"} and event.actor_kind == "system"
    with pytest.raises(Conflict):
        send_test(ada, hook.record.public_id)
    with pytest.raises(Conflict):
        redeliver(ada, hook.record.public_id, list_deliveries(ada, hook.record.public_id).items[0].public_id)


def test_webhook_is_disabled_after_days_of_failures(
    app: Flask, make: Any, ada: Any, hook: SignedWebhook, receiver: Receiver, deliver: Deliver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    box: Mailbox
    with mail_server() as box:
        monkeypatch.setitem(app.config, "GATEHOUSE", mailing(app.config["GATEHOUSE"], box.server()))
        delivery.register()
        receiver.act = lambda: Response(500)
        # It failed once, and there was no event since.
        change(Webhook, failing_since=ago(days=60))
        send_test(ada, hook.record.public_id)
        deliver()
        since = get_webhook(ada, hook.record.public_id).failing_since
        assert since is not None and since > ago(days=1)
        # Another process failed with another event at the same moment.
        change(Webhook, failing_since=ago(days=60))
        send_test(ada, hook.record.public_id)
        deliver()
        assert get_webhook(ada, hook.record.public_id).is_enabled
        change(Webhook, failing_since=ago(days=4, hours=23))
        come_round()
        deliver()
        assert get_webhook(ada, hook.record.public_id).is_enabled
        change(Webhook, failing_since=ago(days=5, minutes=1))
        come_round()
        deliver()
        assert get_webhook(ada, hook.record.public_id).disabled_because == "failing"
        deliver()
        [mail] = box.mails
        assert mail["Subject"] == "A webhook of Acme was disabled"
        assert receiver.url.partition("?")[0] in plain(mail) and "tenant=1" not in plain(mail)


def test_failures_of_different_events_count_together(
    ada: Any, hook: SignedWebhook, receiver: Receiver, deliver: Deliver
) -> None:
    receiver.act = lambda: Response(500)
    send_test(ada, hook.record.public_id)
    deliver()
    change(WebhookDelivery, attempted_at=ago(days=2))
    change(Webhook, failing_since=ago(days=6))
    send_test(ada, hook.record.public_id)
    deliver()
    assert get_webhook(ada, hook.record.public_id).disabled_because == "failing"


def test_webhook_with_too_many_pending_events_is_disabled(
    ada: Any, hook: SignedWebhook, receiver: Receiver, deliver: Deliver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "MAX_PENDING_DELIVERIES", 3)
    receiver.act = lambda: Response(500)
    for _ in range(3):
        send_test(ada, hook.record.public_id)
    deliver()
    assert get_webhook(ada, hook.record.public_id).disabled_because == "backlog"


def test_webhook_that_is_too_slow_is_disabled(
    ada: Any, hook: SignedWebhook, receiver: Receiver, deliver: Deliver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "MAX_PENDING_DELIVERIES", 3)
    for _ in range(6):
        send_test(ada, hook.record.public_id)
    deliver()
    assert get_webhook(ada, hook.record.public_id).is_enabled and len(receiver.heard) == 6, "it keeps up"
    for _ in range(6):
        send_test(ada, hook.record.public_id)
    change(OutboxMessage, created_at=ago(minutes=11))
    deliver()
    assert get_webhook(ada, hook.record.public_id).disabled_because == "backlog"
    assert len(receiver.heard) == 6 + 1, "what waits goes nowhere"


def test_webhook_that_is_enabled_again_starts_without_pending_deliveries(
    ada: Any, hook: SignedWebhook, receiver: Receiver, deliver: Deliver
) -> None:
    """They wait up to an hour for their next attempt, and the webhook may be enabled before."""
    receiver.act = lambda: Response(500)
    for _ in range(2):
        occur(ada)
    deliver()
    update_webhook(ada, hook.record.public_id, {"status": "disabled"})
    assert {each.status for each in list_deliveries(ada, hook.record.public_id).items} == {"failed"}
    update_webhook(ada, hook.record.public_id, {"status": "enabled"})
    receiver.act = Response
    sent = send_test(ada, hook.record.public_id)
    come_round()
    deliver()
    assert [request.headers["webhook-id"] for request in receiver.heard[1:]] == [sent.public_id]


def test_webhook_that_was_disabled_for_its_backlog_can_be_enabled_again(
    ada: Any, hook: SignedWebhook, receiver: Receiver, deliver: Deliver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "MAX_PENDING_DELIVERIES", 3)
    receiver.act = lambda: Response(500)
    for _ in range(3):
        send_test(ada, hook.record.public_id)
    deliver()
    change(OutboxMessage, created_at=ago(hours=1))
    update_webhook(ada, hook.record.public_id, {"status": "enabled"})
    receiver.act = Response
    come_round()
    deliver()
    assert get_webhook(ada, hook.record.public_id).is_enabled


def test_suspended_organization_sends_nothing_until_resumed(
    make: Any, acme: Any, ada: Any, hook: SignedWebhook, receiver: Receiver, deliver: Deliver
) -> None:
    root = make.actor(make.root())
    send_test(ada, hook.record.public_id)
    update_organization(root, "acme", {"status": "suspended"})
    deliver()
    assert receiver.heard == []
    assert get_webhook(ada, hook.record.public_id).failing_since is None, "that is no fault of the receiver"
    waiting = db.session.scalars(select(OutboxMessage).where(OutboxMessage.done_at.is_(None))).all()
    assert {message.attempts for message in waiting} == {0}, "nothing has failed"
    assert max(message.available_at for message in waiting) - clock.now() <= timedelta(minutes=5)
    update_organization(root, "acme", {"status": "active"})
    come_round()
    deliver()
    assert len(receiver.events(hook.secret)) == 1


def test_deleted_or_disabled_webhook_receives_nothing(
    ada: Any, hook: SignedWebhook, receiver: Receiver, deliver: Deliver
) -> None:
    other = create_webhook(ada, {"url": receiver.url, "event_types": ["*"]})
    send_test(ada, hook.record.public_id)
    send_test(ada, other.record.public_id)
    delete_webhook(ada, hook.record.public_id)
    update_webhook(ada, other.record.public_id, {"status": "disabled"})
    deliver()
    assert receiver.heard == []


def test_private_address_is_never_called(
    app: Flask, ada: Any, hook: SignedWebhook, receiver: Receiver, deliver: Deliver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """SF-2: a name that resolves to a private address is rejected at each request."""
    config = dataclasses.replace(app.config["GATEHOUSE"], outgoing_allowed_hosts=frozenset())
    monkeypatch.setitem(app.config, "GATEHOUSE", config)
    send_test(ada, hook.record.public_id)
    assert deliver() == 1
    assert receiver.heard == []
    assert told(ada, hook).failure == "The server could not be reached, or sent no complete response in time."


def test_response_headers_are_stored_and_body_is_not(
    ada: Any, hook: SignedWebhook, receiver: Receiver, deliver: Deliver, database: Database
) -> None:
    """SF-3: the body is not stored, and secrets in headers are redacted."""
    headers = {
        "Content-Type": "text/html",
        "Server": "x" * 900,
        "Set-Cookie": "a=b",
        "Location": "/?token=Bearer abcdefgh",
    }
    receiver.act = lambda: Response(500, b"internal-canary", headers)
    sent = send_test(ada, hook.record.public_id)
    deliver()
    found = get_delivery(ada, hook.record.public_id, sent.public_id)
    assert found.response_headers is not None
    assert set(found.response_headers) <= {"content-type", "date", "location", "server"}
    assert len(found.response_headers["server"]) <= 200
    assert "abcdefgh" not in json.dumps(dict(found.response_headers))
    assert b"internal-canary" not in database.dump()


def test_killed_process_loses_no_event(
    ada: Any, hook: SignedWebhook, receiver: Receiver, deliver: Deliver
) -> None:
    """P5: the message of a killed process is due again when its lease expires."""
    send_test(ada, hook.record.public_id)
    assert outbox.claim_due_message(busy_receivers=(), full_organizations=()) is not None
    assert deliver() == 0
    come_round()
    assert deliver() == 1
    assert told(ada, hook).status == "delivered"
