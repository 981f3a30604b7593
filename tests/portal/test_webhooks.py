"""Webhooks in the portal: adding, changing, testing and deleting them."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import update

from app.extensions import db
from app.models.audit import Webhook, WebhookDelivery
from app.operations.audit.webhooks import disable_gone_webhook
from app.operations.store.outgoing_http import ServerUnreachable
from app.portal.labels import EVENT_GROUPS
from app.rules.audit.events import ALL_EVENTS, GROUPS
from app.rules.audit.webhooks import sign_message
from app.rules.identifiers import parse_public_id
from tests.factories import Factory
from tests.support.databases import Database

URL = "https://hooks.example/in"


def added(ada: Any, **fields: Any) -> str:
    """Add a webhook with the form and return its ID."""
    page = ada.submit("/webhooks/new", **({"url": URL, "groups": "user.*", "description": "CRM"} | fields))
    found = re.search(r"/webhooks/(whk_[0-9a-z]{26})", page.text)
    assert page.status_code == 200 and found, page.text
    return found[1]


def change(app: Flask, model: Any, **values: Any) -> None:
    """Set values in every row of the model."""
    with app.app_context():
        db.session.execute(update(model).values(**values))
        db.session.commit()


def test_signing_secret_is_shown_only_once(ada: Any) -> None:
    ada.get("/webhooks")
    assert "No webhooks yet" in ada.text
    webhook = added(ada)
    secret = re.search(r"whsec_[A-Za-z0-9+/=]+", ada.page.text)
    assert secret and ada.page.headers["Cache-Control"] == "no-store"
    for path in ("/webhooks", f"/webhooks/{webhook}", f"/webhooks/{webhook}/edit", "/audit"):
        assert secret[0] not in ada.get(path).text
    ada.get(f"/webhooks/{webhook}")
    assert "No deliveries yet" in ada.text and "user.*" in ada.text


def test_verification_example_works(ada: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example code accepts our signatures and rejects all others."""
    webhook = added(ada)
    secret = re.search(r"whsec_[A-Za-z0-9+/=]+", ada.page.text)
    [lines] = re.findall(r"<pre[^>]*>(import .*?)</pre>", ada.page.text, re.DOTALL)
    assert lines in ada.get(f"/webhooks/{webhook}").text
    example: dict[str, Any] = {}
    exec(html.unescape(lines), example)  # noqa: S102  # code of our own page
    assert secret is not None
    monkeypatch.setenv("WEBHOOK_SECRET", secret[0])
    now, body = int(time.time()), b'{"type": "user.disabled"}'
    signed = sign_message(secret[0], "dlv_1", now, body)
    headers = {"webhook-id": "dlv_1", "webhook-timestamp": str(now), "webhook-signature": f"v1,no {signed}"}
    assert example["is_genuine"](headers, body)
    assert not example["is_genuine"](headers, body + b" ")
    assert not example["is_genuine"](headers | {"webhook-id": "dlv_2"}, body)
    old = {
        "webhook-timestamp": str(now - 301),
        "webhook-signature": sign_message(secret[0], "dlv_1", now - 301, body),
    }
    assert not example["is_genuine"](headers | old, body)


def test_invalid_values_show_errors_at_their_fields(ada: Any, database: Database) -> None:
    page = ada.send("/webhooks/new", url="http://hooks.example", event_types="user.exploded\nuser.created")
    assert page.status_code == 400
    assert 'href="#url"' in page.text and "Line 1" in ada.text
    assert 'value="http://hooks.example"' in page.text
    ada.send("/webhooks/new", url="https://localhost:8443/hooks", groups="user.*")
    assert "The operator of this instance can allow other hosts." in ada.text
    assert database.count("webhooks") == 0


def test_groups_and_single_events_are_saved(ada: Any) -> None:
    webhook = added(ada, event_types="client.deleted")
    page = ada.get(f"/webhooks/{webhook}/edit").text
    assert re.search(r'value="user\.\*" checked', page) and "client.deleted</textarea>" in page
    fields = {
        "url": URL,
        "groups": "session.*",
        "event_types": "",
        "is_enabled": "1",
        "version": ada.hidden("version"),
    }
    ada.send(f"/webhooks/{webhook}/edit", **fields)
    ada.follow()
    assert "Saved." in ada.text and "session.*" in ada.text and "client.deleted" not in ada.text
    stale = ada.send(f"/webhooks/{webhook}/edit", **(fields | {"description": "Late"}))
    assert stale.status_code == 412 and "Someone changed this webhook" in ada.text


def test_test_event_can_be_resent(ada: Any) -> None:
    webhook = added(ada)
    ada.get(f"/webhooks/{webhook}")
    ada.send(f"/webhooks/{webhook}/test")
    ada.follow()
    assert (
        "The event is being delivered." in ada.text and "webhook.test" in ada.text and "Pending" in ada.text
    )
    delivery = re.search(r"dlv_[0-9a-z]{26}", ada.page.text)
    assert delivery
    ada.send(f"/webhooks/{webhook}/deliveries/{delivery[0]}/redeliver")
    ada.follow()
    assert "The event is being delivered." in ada.text


@pytest.mark.parametrize(
    ("status", "failure", "shown"),
    [
        (500, "The endpoint responded with status 500.", "Der Endpunkt hat mit dem Status 500 geantwortet."),
        (None, ServerUnreachable().description, "Der Server war nicht erreichbar"),
    ],
)
def test_error_of_delivery_is_in_the_language_of_the_page(
    app: Flask, ada: Any, status: int | None, failure: str, shown: str
) -> None:
    webhook = added(ada)
    ada.send(f"/webhooks/{webhook}/test")
    ada.follow()
    change(app, WebhookDelivery, response_status=status, duration_ms=12, failure=failure)
    delivery = re.search(r"dlv_[0-9a-z]{26}", ada.page.text)
    assert delivery
    ada.get(f"/webhooks/{webhook}/deliveries/{delivery[0]}")
    assert failure in ada.text
    assert ("The operator of this instance can find the cause" in ada.text) == (status is None)
    ada.http.environ_base["HTTP_ACCEPT_LANGUAGE"] = "de"
    ada.get(f"/webhooks/{webhook}/deliveries/{delivery[0]}")
    assert shown in ada.text


def test_disabled_webhook_shows_reason_and_sends_no_test(
    app: Flask, make: Factory, acme: Any, ada: Any
) -> None:
    webhook = added(ada)
    ada.send(f"/webhooks/{webhook}/test")
    ada.follow()
    delivery = re.search(r"dlv_[0-9a-z]{26}", ada.page.text)
    assert delivery and "The webhook is disabled." not in ada.text
    with app.app_context():
        disable_gone_webhook(make.system(acme), parse_public_id("whk", webhook))
    ada.get(f"/webhooks/{webhook}/deliveries/{delivery[0]}")
    assert "The webhook is disabled. Enable it to resend this event." in ada.text
    reason = "The receiver responded with 410 Gone."
    ada.get(f"/webhooks/{webhook}")
    assert reason in ada.text and "Send a test event" not in ada.text
    page = ada.get("/audit?action=webhook.disabled")
    [event] = re.findall(r"/audit/evt_\w+", page.text)
    ada.get(event)
    assert f"Reason because not set {reason} gone" in ada.text
    ada.get(f"/webhooks/{webhook}")
    page = ada.send(f"/webhooks/{webhook}/test")
    assert page.status_code == 409 and "disabled" in ada.text


def test_secret_is_rotated_and_webhook_deleted(ada: Any, database: Database) -> None:
    webhook = added(ada)
    assert "Rotating again" not in ada.get(f"/webhooks/{webhook}/secret").text
    page = ada.submit(f"/webhooks/{webhook}/secret")
    assert "whsec_" in page.text and "Previous secret valid" in ada.text
    assert "Rotating again" in ada.get(f"/webhooks/{webhook}/secret").text
    ada.get(f"/webhooks/{webhook}/delete")
    ada.send(f"/webhooks/{webhook}/delete")
    ada.follow()
    assert "Webhook deleted" in ada.text
    assert database.count(Webhook.__tablename__) == 1 and database.count(WebhookDelivery.__tablename__) == 0


@pytest.mark.parametrize(("role", "sees"), [("auditor", True), ("developer", False)])
def test_reader_sees_no_buttons(
    acme: Any, ada: Any, portal_user: Callable[..., Any], role: str, sees: bool
) -> None:
    webhook = added(ada)
    reader = portal_user(acme, role)
    page = reader.get(f"/webhooks/{webhook}")
    assert page.status_code == (200 if sees else 403)
    assert ("Webhooks" in reader.get("/clients").text) is sees
    if sees:
        assert "Send a test event" not in page.text and "Delete" not in page.text
        assert reader.get("/webhooks/new").status_code == 403


def test_every_event_group_has_label() -> None:
    assert set(EVENT_GROUPS) == {ALL_EVENTS, *GROUPS}


def test_forms_require_fresh_sign_in(ada: Any, database: Database) -> None:
    webhook = added(ada)
    database.query("UPDATE sessions SET authenticated_at = '2026-01-01 00:00:00'")
    for answer in (
        ada.get("/webhooks/new"),
        ada.get(f"/webhooks/{webhook}/secret"),
        ada.send(
            f"/webhooks/{webhook}/edit", url="https://elsewhere.example/", groups="user.*", is_enabled="1"
        ),
    ):
        assert answer.status_code == 303 and "reauthenticate=1" in answer.headers["Location"]
    assert database.query("SELECT CAST(url AS CHAR) FROM webhooks") == [(URL,)]
