"""Leak reports: leaked secrets are revoked and their owners notified; other reports change nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from app.operations.audit import leaked_secrets
from app.operations.audit.audit_events import list_audit_events
from app.operations.audit.webhook_deliveries import list_deliveries
from app.operations.audit.webhooks import create_webhook
from app.operations.clients.credentials import create_credential
from app.operations.organizations.setup import is_setup_token, issue_setup_token
from app.rules.identifiers import new_token
from tests.factories import Factory, basic_header
from tests.oauth.conftest import Flow, audited
from tests.support.databases import Database
from tests.support.mail_server import Mailbox, plain

URL = "https://github.com/acme/shop/blob/main/.env?token=hidden#L3"


def report(http: FlaskClient, *found: str, **more: Any) -> TestResponse:
    body = [{"token": token, "type": "gatehouse", "url": URL, "source": "commit"} | more for token in found]
    return http.post("/leak-reports", json=body)


def test_setup_token_is_revoked(app: Flask, http: FlaskClient) -> None:
    with app.app_context():
        token = issue_setup_token()
        assert is_setup_token(token)
    assert report(http, token).status_code == 202
    with app.app_context():
        assert not is_setup_token(token)


def test_revoking_unknown_strings_returns_200_and_changes_nothing(
    flow: Flow, make: Factory, database: Database
) -> None:
    make.root()
    real = flow.tokens()["access_token"]
    before = audited(database, "secret.leak_reported")
    unknown = new_token("cs", flow.organization.id)
    elsewhere = new_token("at", "zzzzzzzz")
    wrong_sum = real[:-1] + ("0" if real[-1] != "0" else "1")
    answers = {
        report(flow.http, token).data
        for token in (
            unknown,
            elsewhere,
            wrong_sum,
            "ghp_" + "x" * 36,
            "gth_",
            "ü",
            "eyJ.eyJ.x",
            "x" * 20_000,
        )
    }
    assert len(answers) == 1
    assert audited(database, "secret.leak_reported") == before
    assert flow.is_alive(real), "tokens that were not reported stay active"
    assert report(flow.http, real).data in answers


def test_leaked_client_secret_revokes_only_its_own_tokens(flow: Flow, make: Factory) -> None:
    make.root()
    minted = flow.tokens()
    with flow.app.app_context():
        second = create_credential(make.actor(flow.organization), flow.client.client_id)
    assert second.secret
    report(flow.http, flow.client.secret)
    other = make.machine(flow.organization, "clients:read")
    form = {"grant_type": "client_credentials"}
    assert flow.http.post("/oauth/token", data=form, headers=other.basic).status_code == 200
    renewed = basic_header(flow.client.client_id, second.secret)
    told = flow.http.post("/oauth/introspect", data={"token": minted["access_token"]}, headers=renewed)
    assert told.get_json() == {"active": False}
    assert flow.refresh(minted["refresh_token"], headers=renewed).status_code == 400


def test_last_root_secret_can_be_revoked(flow: Flow, make: Factory) -> None:
    """The rule against locking oneself out does not protect a leaked secret."""
    machine = make.machine(make.root())
    report(flow.http, machine.secret)
    form = {"grant_type": "client_credentials"}
    assert flow.http.post("/oauth/token", data=form, headers=machine.basic).status_code == 401


def test_audit_log_records_where_it_was_found_but_not_the_secret(
    flow: Flow, make: Factory, database: Database
) -> None:
    make.root()
    report(flow.http, flow.client.secret, source="commit\u202e", type="x" * 300)
    with flow.app.app_context():
        actor = make.actor(flow.organization)
        [event] = list_audit_events(actor, filters={"action": "secret.leak_reported"}).items
    assert event.target_type == "credential" and event.actor_label == "leak report"
    assert event.after == {
        "client_id": flow.client.client_id,
        "name": event.after and event.after["name"],
        "what": "A client secret",
        "url": "https://github.com/acme/shop/blob/main/.env",
    }
    dump = database.dump()
    assert flow.client.secret.encode() not in dump and b"hidden" not in dump


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "https://",
        "ftp://x/y",
        "https://x\n/y",
        "https://[::1",
        "/etc/passwd",
        "x" * 9000,
    ],
)
def test_malformed_report_url_is_not_recorded(flow: Flow, make: Factory, url: str) -> None:
    make.root()
    report(flow.http, flow.client.secret, url=url)
    with flow.app.app_context():
        [event] = list_audit_events(make.actor(flow.organization), filters={"action": "secret"}).items
    assert event.after is not None and "url" not in event.after


def leak_letters(box: Mailbox) -> list[Any]:
    return [mail for mail in box.mails if "was leaked" in mail["Subject"]]


def test_owner_and_administrators_are_notified_without_the_reported_link(
    flow: Flow, make: Factory, box: Mailbox, deliver: Callable[[], int]
) -> None:
    make.root()
    make.user(flow.organization, email="admin@acme.example", role="admin")
    owner = make.user(flow.organization, email="owner@acme.example")
    with flow.app.app_context():
        client = make.client(flow.organization, by=make.actor(flow.organization, user=owner))
    report(flow.http, client.secret)
    report(flow.http, client.secret)
    deliver()
    mails = leak_letters(box)
    assert sorted(mail["To"] for mail in mails) == ["admin@acme.example", "owner@acme.example"]
    words = plain(mails[0])
    assert "found at github.com" in words and "blob" not in words and client.client_id in words
    pages = {mail["To"]: plain(mail).rpartition(f"/{flow.organization.slug}/")[2].strip() for mail in mails}
    assert pages["admin@acme.example"].startswith("audit?")
    assert pages["owner@acme.example"] == f"clients/{client.client_id}", "who may not see the audit log"
    report(flow.http, make.sign_in(owner).token)
    deliver()
    [mail] = [mail for mail in leak_letters(box)[2:] if mail["To"] == "owner@acme.example"]
    assert plain(mail).strip().endswith("/account/security") and "an app" not in plain(mail)


def test_notification_emails_are_limited(
    flow: Flow, make: Factory, box: Mailbox, deliver: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaked_secrets, "MAX_EMAILS_PER_HOUR", 2)
    make.root()
    make.user(flow.organization, email="admin@acme.example", role="admin")
    report(flow.http, *(make.client(flow.organization).secret for _ in range(4)))
    deliver()
    assert len(leak_letters(box)) == 2


def test_webhooks_are_notified(flow: Flow, make: Factory) -> None:
    make.root()
    with flow.app.app_context():
        actor = make.actor(flow.organization)
        hook = create_webhook(actor, {"url": "https://hooks.example/", "event_types": ["credential.leaked"]})
    report(flow.http, flow.client.secret)
    with flow.app.app_context():
        [told] = list_deliveries(actor, hook.record.public_id).items
    assert told.event_type == "credential.leaked"
    assert told.body is not None and told.body["data"]["action"] == "secret.leak_reported"
    assert flow.client.secret not in str(told.body)


def test_frequent_reports_are_rate_limited(
    flow: Flow, make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    make.root()
    for _ in range(leaked_secrets.NETWORK_LIMIT.max_failures):
        assert report(flow.http, "nothing").status_code == 202
    answer = report(flow.http, flow.client.secret)
    assert answer.status_code == 429 and int(answer.headers["Retry-After"]) > 0


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ([], ""),
        ([{"token": "x"}] * 101, ""),
        ([7], "[0]"),
        ("gth_cs_x", "[0]"),
        ([{"token": 7}], "[0].token"),
        ([{"url": URL}], "[0].token"),
        ([{"token": "x"}, {"token": "y", "url": 7}], "[1].url"),
        ({"tokens": []}, "[0].token"),
    ],
)
def test_invalid_report_is_explained(http: FlaskClient, make: Factory, body: Any, field: str) -> None:
    make.root()
    answer = http.post("/leak-reports", json=body)
    assert answer.status_code == 400 and answer.get_json()["errors"][0]["field"] == field


def test_single_report_is_an_object_and_unknown_fields_are_ignored(flow: Flow, make: Factory) -> None:
    make.root()
    token = flow.tokens()["access_token"]
    answer = flow.http.post("/api/v1/leak-reports", json={"token": token, "severity": {"x": [1]}})
    assert answer.status_code == 202
    assert not flow.is_alive(token)


def test_report_body_follows_the_general_body_limits(http: FlaskClient, make: Factory) -> None:
    make.root()
    big = b'[{"token": "' + b"x" * 70_000 + b'"}]'
    assert http.post("/leak-reports", data=big, content_type="application/json").status_code == 413
    for bad in (b'[{"token": "a", "token": "b"}]', b"[" * 40 + b"]" * 40, b"[NaN]", b"\xff"):
        assert http.post("/leak-reports", data=bad, content_type="application/json").status_code == 400
    assert http.post("/leak-reports", data=b"[]", content_type="text/plain").status_code == 415
    assert http.get("/leak-reports").status_code == 405


def test_stored_request_of_a_sign_in_in_progress_is_revoked(
    flow: Flow, make: Factory, database: Database
) -> None:
    """It is part of a URL of this service for minutes."""
    make.root()
    fresh = Flow(flow.app, flow.app.test_client(), flow.make, flow.client, flow.user)
    where = fresh.authorize().headers["Location"]
    token = next(
        part for part in where.replace("=", "&").replace("/", "&").split("&") if part.startswith("gth_ar_")
    )
    report(flow.http, token)
    assert audited(database, "secret.leak_reported") == 1
