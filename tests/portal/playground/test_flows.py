"""The playground: the real flows with one's own client."""

from __future__ import annotations

import re
from html import unescape
from typing import Any
from urllib.parse import urlsplit

import pytest
from flask import Flask
from sqlalchemy import func, select, update

from app.extensions import db
from app.models.grant import AuthorizationCode, Consent, Grant
from app.operations.authorization import playground
from app.operations.organizations.settings import update_settings
from app.operations.store import clock
from app.operations.store.transactions import transaction
from app.operations.store.usage_counters import counters
from tests.factories import Factory, MadeClient
from tests.oauth.device import Device
from tests.portal.conftest import PortalUser
from tests.portal.playground.conftest import CODE, Try, allow, own_client, sealed
from tests.support.databases import Database
from tests.support.form_browser import Page


def allow_nobody(make: Factory, organization: Any) -> None:
    with make.app.app_context():
        changes = {"oauth": {"consent": {"members_may_allow": "none"}}}
        update_settings(make.system(organization), organization.slug, changes)


def test_only_client_is_chosen_from_the_start(make: Factory, acme: Any, grace: PortalUser) -> None:
    own_client(make, acme, grace)
    assert "Build the request" in grace.get("/playground").text

    own_client(make, acme, grace, name="Another")
    assert "Build the request" not in grace.get("/playground").text


def test_confidential_client_gets_tokens_without_its_secret(grace: PortalUser, orchard: MadeClient) -> None:
    """The whole flow; the page never has the secret."""
    run = Try(grace, orchard)
    assert run.request["redirect_uri"].endswith("/portal/acme/playground/callback")
    assert run.request["code_challenge_method"] == "S256" and len(run.request["state"]) >= 43
    code = run.come_back()
    assert "state ✓" in grace.text and "iss ✓" in grace.text and "code ✓" in grace.text
    page = run.redeem(code)
    assert "200" in grace.text and "Signature ✓" in grace.text and "nonce ✓" in grace.text
    assert "at_hash ✓" in grace.text and "is wrong" not in grace.text
    assert "$CLIENT_SECRET" in page.text and orchard.secret not in page.text
    assert run.press("userinfo") and "grace@acme.example" in run.response("email")
    assert run.press("introspect") and '"active": true' in unescape(grace.page.text)
    run.press("revoke-all")
    assert run.press("introspect") and '"active": false' in unescape(grace.page.text)


def test_public_client_gets_tokens_and_refreshes(grace: PortalUser, make: Factory, acme: Any) -> None:
    spa = own_client(make, acme, grace, type="spa")
    run = Try(grace, spa, scopes=["openid", "offline_access"])
    run.redeem(run.come_back())
    first = run.response("refresh_token")
    run.press("refresh")
    assert run.response("refresh_token") != first
    assert "Introspect" not in grace.text


def test_client_credentials_get_a_token(
    grace: PortalUser, make: Factory, acme: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long response is cut, and the page says so."""
    machine = own_client(make, acme, grace, type="machine", scopes=[], redirect_uris=[])
    run = Try(grace, machine, "client_credentials", scopes=[])
    run.press("token")
    assert run.response("access_token").startswith("gth_at_")
    assert "grant_type=client_credentials" in grace.page.text
    monkeypatch.setattr(playground, "MAX_BODY_LENGTH", 20)
    run.press("introspect")
    assert re.search(r"These are the first 20 of \d{3} characters\.", grace.text)


def test_owner_needs_no_approval_and_consents_as_everybody(
    grace: PortalUser, orchard: MadeClient, make: Factory, acme: Any
) -> None:
    """Without the playground the same user has to ask an administrator."""
    allow_nobody(make, acme)
    run = Try(grace, orchard)
    usual = grace.http.get(
        "/oauth/authorize", query_string=run.request | {"redirect_uri": "https://orchard.example/callback"}
    )
    assert "client-request-send" in grace.http.get(usual.headers["Location"]).text
    consent = grace.http.get("/oauth/authorize", query_string=run.request)
    assert "consent-allow" in grace.http.get(consent.headers["Location"]).text
    run.redeem(run.come_back())
    with make.app.app_context():
        # The access ends with the run, and the app that asks later needs the approval as before.
        [grant] = db.session.scalars(select(Grant).where(Grant.organization_id == acme.id))
        assert grant.expires_at <= clock.now() + playground.LIFETIME
        assert db.session.scalar(select(func.count()).select_from(Consent)) == 0


@pytest.mark.parametrize(
    ("broken", "cause"),
    [
        ("verifier", "The code_verifier is missing or does not match"),
        ("redirect", "The redirect URI at the token endpoint is not the one"),
        ("reuse", "The code was used twice, and the tokens issued for it were revoked."),
    ],
)
def test_broken_request_shows_the_real_error_and_its_cause(
    grace: PortalUser, orchard: MadeClient, broken: str, cause: str
) -> None:
    run = Try(grace, orchard)
    code = run.come_back()
    run.redeem(code, broken)
    assert "400" in grace.text and cause in grace.text and run.response("error") == "invalid_grant"
    if broken == "reuse":
        run.press("introspect")
        assert '"active": false' in unescape(grace.page.text)
        return
    run.redeem(code)
    assert "Signature ✓" in grace.text


def test_expired_code_is_replaced_by_that_of_another_sign_in(
    grace: PortalUser, orchard: MadeClient, make: Factory
) -> None:
    run = Try(grace, orchard)
    late = run.come_back()
    assert "Go again" not in grace.text
    expire_codes(make.app)
    run.redeem(late)
    assert "The code has expired." in grace.text and "Go again" in grace.text
    code = run.come_back()
    assert f"code ✓ The code works once, within 60 seconds. {code}" in grace.text
    run.redeem(code)
    assert run.response("access_token") and "Go again" not in grace.text


def expire_codes(app: Flask) -> None:
    @transaction
    def act() -> None:
        db.session.execute(update(AuthorizationCode).values(expires_at=AuthorizationCode.issued_at))

    with app.app_context():
        act()


def test_failed_request_is_marked_in_the_log(
    grace: PortalUser, orchard: MadeClient, app: Flask, database: Database
) -> None:
    run = Try(grace, orchard)
    run.redeem(run.come_back(), "verifier")
    with app.app_context():
        app.extensions["failed_requests"].write_waiting()
    grace.get("/logs")
    entry = re.search(r"/logs/(flr_\w+)", grace.page.text)
    assert entry
    grace.get(f"/logs/{entry[1]}")
    assert "by the playground" in grace.text and "playground=" not in grace.page.text
    assert counted(app, database) == 0, "broken on purpose, and not by the client"
    forged = {"grant_type": CODE, "code": "x", "playground": "yes"}
    assert app.test_client().post("/oauth/token", data=forged, headers=orchard.basic).status_code == 400
    assert counted(app, database) > 0, "no client hides its failures"
    actions = {row[0] for row in database.query("SELECT CAST(action AS CHAR) FROM audit_events")}
    assert {"playground.started", "playground.request_sent"} <= actions


def counted(app: Flask, database: Database) -> int:
    """Write what waits and return the number of counters of failures."""
    with app.app_context():
        app.extensions["failed_requests"].write_waiting()
        counters.flush()
    return int(
        database.query("SELECT COUNT(*) FROM usage_counters WHERE CAST(metric AS CHAR) = 'failed'")[0][0]
    )


def test_grant_of_the_playground_says_so_in_the_audit_log(
    grace: PortalUser, orchard: MadeClient, database: Database
) -> None:
    run = Try(grace, orchard)
    run.redeem(run.come_back())
    [(label,)] = database.query(
        "SELECT actor_label FROM audit_events WHERE CAST(action AS CHAR) = 'grant.created'"
    )
    assert label == "Orchard (playground)"
    [used] = database.query("SELECT last_used_at, pkce_used_at FROM clients")
    assert used == (None, None), "what production is judged by"


def test_stored_run_holds_no_secret_in_clear(
    grace: PortalUser, orchard: MadeClient, database: Database
) -> None:
    run = Try(grace, orchard, scopes=["openid", "offline_access"])
    state, code = run.request["state"], run.come_back()
    run.redeem(code)
    held = (state, code, run.response("access_token"), run.response("refresh_token"))
    assert not any(value.encode() in bytes(row[0]) for row in sealed(database) for value in held)


def test_device_code_flow_gets_tokens_after_the_user_entered_the_code(
    grace: PortalUser, make: Factory, acme: Any
) -> None:
    television = own_client(make, acme, grace, type="device", redirect_uris=[])
    run = Try(grace, television, "urn:ietf:params:oauth:grant-type:device_code")
    run.press("device")
    assert re.search(r'id="user-code">[A-Z]{4}-[A-Z]{4}<', grace.page.text)
    run.press("token")
    assert run.response("error") == "authorization_pending"
    device = Device(grace.http, make, grace.user)
    device.client = television
    device.allow(run.response("user_code"))
    device.wait()
    run.press("token")
    assert "Signature ✓" in grace.text and run.response("access_token")


def test_new_sign_in_of_the_same_user_continues_the_run(grace: PortalUser, orchard: MadeClient) -> None:
    """``prompt=login`` replaces the session."""
    run = Try(grace, orchard, prompt="login")
    page = grace.http.get(run.authorize().headers["Location"])
    form = Page("", page.status_code, page.text).form_with("login-submit")
    typed = {form.ids["username"]: grace.user.email, form.ids["password"]: grace.user.password}
    resume = grace.http.post(form.action, data=dict(form.values) | typed).headers["Location"]
    callback = urlsplit(allow(grace.http, resume).headers["Location"])
    grace.get(f"{callback.path}?{callback.query}")
    assert "state ✓" in grace.text


def test_oldest_runs_are_deleted(grace: PortalUser, orchard: MadeClient, database: Database) -> None:
    for _ in range(playground.MAX_RUNS_PER_USER + 2):
        Try(grace, orchard)
    [(count,)] = database.query("SELECT COUNT(*) FROM playground_runs")
    assert count == playground.MAX_RUNS_PER_USER
