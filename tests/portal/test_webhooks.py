"""Webhooks at the portal: added, looked at, changed, tried out and deleted by people."""

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
from app.models.webhook import Webhook, WebhookDelivery
from app.portal.words import WEBHOOK_GROUPS
from app.rules.audit.events import ALL_EVENTS, GROUPS
from app.rules.audit.webhooks import sign_message
from tests.support.databases import Database

URL = "https://hooks.example/in"


def added(ada: Any, **fields: Any) -> str:
    """The id of a webhook that was added by the form."""
    page = ada.send("/webhooks/new", **({"url": URL, "groups": "user.*", "description": "CRM"} | fields))
    found = re.search(r"/webhooks/(whk_[0-9a-z]{26})", page.text)
    assert page.status_code == 200 and found, page.text
    return found[1]


def change(app: Flask, model: Any, **values: Any) -> None:
    """Every row of the model has the values."""
    with app.app_context():
        db.session.execute(update(model).values(**values))
        db.session.commit()


def test_the_secret_stands_on_the_page_that_answers_and_on_no_other(ada: Any) -> None:
    ada.get("/webhooks")
    assert "No webhooks yet" in ada.text
    webhook = added(ada)
    secret = re.search(r"whsec_[A-Za-z0-9+/=]+", ada.page.text)
    assert secret and ada.page.headers["Cache-Control"] == "no-store"
    for path in ("/webhooks", f"/webhooks/{webhook}", f"/webhooks/{webhook}/edit", "/audit"):
        assert secret[0] not in ada.get(path).text
    ada.get(f"/webhooks/{webhook}")
    assert "It was told nothing yet" in ada.text and "user.*" in ada.text


def test_the_lines_that_verify_do_so(ada: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the page has for the receiver's server runs, and believes what we sign and nothing else."""
    webhook = added(ada)
    secret = re.search(r"whsec_[A-Za-z0-9+/=]+", ada.page.text)
    [lines] = re.findall(r"<pre[^>]*>(import .*?)</pre>", ada.page.text, re.DOTALL)
    assert lines in ada.get(f"/webhooks/{webhook}").text
    given: dict[str, Any] = {}
    exec(html.unescape(lines), given)  # noqa: S102  # our own page's
    assert secret is not None
    monkeypatch.setenv("WEBHOOK_SECRET", secret[0])
    now, body = int(time.time()), b'{"type": "user.disabled"}'
    signed = sign_message(secret[0], "dlv_1", now, body)
    headers = {"webhook-id": "dlv_1", "webhook-timestamp": str(now), "webhook-signature": f"v1,no {signed}"}
    assert given["is_genuine"](headers, body)
    assert not given["is_genuine"](headers, body + b" ")
    assert not given["is_genuine"](headers | {"webhook-id": "dlv_2"}, body)
    old = {
        "webhook-timestamp": str(now - 301),
        "webhook-signature": sign_message(secret[0], "dlv_1", now - 301, body),
    }
    assert not given["is_genuine"](headers | old, body)


def test_what_is_wrong_stands_at_its_field(ada: Any, database: Database) -> None:
    page = ada.send("/webhooks/new", url="http://hooks.example", event_types="user.exploded\nuser.created")
    assert page.status_code == 400
    assert 'href="#url"' in page.text and "Line 1" in ada.text
    assert 'value="http://hooks.example"' in page.text, "what was typed stays"
    assert database.count("webhooks") == 0


def test_groups_and_single_events_are_saved_together(ada: Any) -> None:
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
    assert stale.status_code == 412 and "Somebody changed this webhook" in ada.text


def test_a_test_event_leads_to_its_delivery_which_can_be_sent_again(ada: Any) -> None:
    webhook = added(ada)
    ada.get(f"/webhooks/{webhook}")
    ada.send(f"/webhooks/{webhook}/test")
    ada.follow()
    assert "It is on its way." in ada.text and "webhook.test" in ada.text and "Waiting" in ada.text
    delivery = re.search(r"dlv_[0-9a-z]{26}", ada.page.text)
    assert delivery
    ada.send(f"/webhooks/{webhook}/deliveries/{delivery[0]}/redeliver")
    ada.follow()
    assert "It is on its way." in ada.text


def test_a_disabled_one_says_why_and_takes_no_test(app: Flask, ada: Any) -> None:
    webhook = added(ada)
    change(app, Webhook, status="disabled", disabled_because="failing")
    ada.get(f"/webhooks/{webhook}")
    assert "It took nothing for days." in ada.text and "Send a test event" not in ada.text
    page = ada.send(f"/webhooks/{webhook}/test")
    assert page.status_code == 409 and "disabled" in ada.text


def test_a_new_secret_and_the_end(ada: Any, database: Database) -> None:
    webhook = added(ada)
    ada.get(f"/webhooks/{webhook}/secret")
    page = ada.send(f"/webhooks/{webhook}/secret")
    assert "whsec_" in page.text and "The secret before signs beside it" in ada.text
    ada.get(f"/webhooks/{webhook}/delete")
    ada.send(f"/webhooks/{webhook}/delete")
    ada.follow()
    assert "The webhook is deleted" in ada.text
    assert database.count(Webhook.__tablename__) == 1 and database.count(WebhookDelivery.__tablename__) == 0


@pytest.mark.parametrize(("role", "sees"), [("auditor", True), ("developer", False)])
def test_who_may_only_read_gets_no_buttons(
    acme: Any, ada: Any, person: Callable[..., Any], role: str, sees: bool
) -> None:
    webhook = added(ada)
    reader = person(acme, role)
    page = reader.get(f"/webhooks/{webhook}")
    assert page.status_code == (200 if sees else 403)
    assert ("Webhooks" in reader.get("/clients").text) is sees
    if sees:
        assert "Send a test event" not in page.text and "Delete" not in page.text
        assert reader.get("/webhooks/new").status_code == 403


def test_every_group_has_its_words() -> None:
    assert set(WEBHOOK_GROUPS) == {ALL_EVENTS, *GROUPS}


def test_a_browser_left_open_is_asked_to_sign_in_before_anything_is_typed(
    ada: Any, database: Database
) -> None:
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
