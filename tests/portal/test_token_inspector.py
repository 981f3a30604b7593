"""The token inspector: what it says about each kind of token, and to whom."""

from __future__ import annotations

import base64
import json
import logging
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import update

from app.extensions import db
from app.models.grant import Grant
from app.models.user import User
from app.operations.clients.clients import update_client
from app.operations.grants.grant_lists import revoke_grant
from app.operations.organizations.settings import update_settings
from app.rules.identifiers import KINDS, new_refresh_token, new_token, parse_token
from tests.factories import Factory, MadeClient
from tests.oauth.conftest import SCOPES, Flow, change_rows, clock_ago
from tests.portal.conftest import PortalUser
from tests.support.cases import each
from tests.support.databases import Database

SETTINGS = {"oauth": {"signing": {"algorithm": "ES256"}}}


@pytest.fixture
def acme(make: Factory) -> Any:
    return make.organization("acme", name="Acme", settings=SETTINGS)


@pytest.fixture
def grace(portal_user: Any, acme: Any) -> PortalUser:
    found: PortalUser = portal_user(acme, "developer", email="grace@acme.example")
    return found


@pytest.fixture
def orchard(make: Factory, acme: Any, grace: PortalUser) -> MadeClient:
    with make.app.app_context():
        return make.client(acme, by=make.actor(acme, user=grace.user), scopes=SCOPES)


@pytest.fixture
def flow(app: Flask, make: Factory, acme: Any, orchard: MadeClient) -> Flow:
    flow = Flow(app, app.test_client(), make, orchard, make.user(acme, email="bob@acme.example"))
    flow.sign_in()
    return flow


def inspect(user: PortalUser, token: str, **fields: str) -> str:
    """Return the text of the result page."""
    user.get("/inspect")
    user.send("/inspect", token=token, **fields)
    return user.text


def jwt_of(claims: dict[str, Any]) -> str:
    """Return a JWT without a signature."""
    parts = (json.dumps(part).encode() for part in ({"alg": "none"}, claims))
    return ".".join([*(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts), "e30"])


def use_jwt(make: Factory, organization: Any) -> None:
    with make.app.app_context():
        update_settings(make.system(organization), "acme", {"oauth": {"access_token": {"format": "jwt"}}})


def test_opaque_access_token_shows_whose_it_is(grace: PortalUser, flow: Flow) -> None:
    page = inspect(grace, flow.tokens()["access_token"])
    assert "Access token (opaque) Valid" in page and "Orchard" in page and "bob@acme.example" in page
    assert "UserInfo of this organization" in page and "grt_" in page


def test_authorization_header_is_understood(grace: PortalUser, flow: Flow) -> None:
    assert "Valid" in inspect(grace, f"  Bearer {flow.tokens()['access_token']}\n")


def test_jwt_access_token_is_verified(grace: PortalUser, flow: Flow, make: Factory, acme: Any) -> None:
    use_jwt(make, acme)
    token = flow.tokens()["access_token"]
    page = inspect(grace, token)
    assert "Access token (JWT) Valid" in page and "Verified by a key of this organization" in page
    assert "Expires" in page and "in 1" in page
    head, body, signature = token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    forged = base64.urlsafe_b64encode(json.dumps(claims | {"sub": "usr_x"}).encode()).decode().rstrip("=")
    page = inspect(grace, f"{head}.{forged}.{signature}")
    assert "Invalid No published key" in page and "Orchard" not in page


def test_id_token_is_verified(grace: PortalUser, flow: Flow) -> None:
    page = inspect(grace, flow.tokens()["id_token"])
    assert "ID token (JWT) Valid" in page and "Orchard" in page and "Hash of the access token" in page
    assert "Revoke this token" not in page


def test_refresh_token_is_replaced_then_revoked(
    grace: PortalUser, flow: Flow, make: Factory, acme: Any, database: Database
) -> None:
    first = flow.tokens()["refresh_token"]
    assert "Refresh token (opaque) Valid" in inspect(grace, first)
    second = flow.refresh(first).get_json()["refresh_token"]
    assert "Replaced" in inspect(grace, first) and "Valid" in inspect(grace, second)
    inspect(grace, second, action="revoke")
    grace.follow()
    assert "token revoked" in grace.text.lower()
    assert "Revoked" in inspect(grace, second)
    assert flow.refresh(second).status_code == 400


def test_refresh_token_that_was_not_used_for_too_long_has_expired(grace: PortalUser, flow: Flow) -> None:
    token = flow.tokens()["refresh_token"]
    change_rows(flow, Grant, idle_expires_at=clock_ago(flow, 60))
    assert "Expired It has expired." in inspect(grace, token)


def test_access_token_is_revoked(grace: PortalUser, flow: Flow) -> None:
    token = flow.tokens()["access_token"]
    assert "stop working everywhere" in inspect(grace, token)
    inspect(grace, token, action="revoke")
    assert "Revoked It was revoked" in inspect(grace, token) and not flow.is_alive(token)


@pytest.mark.parametrize("ending", ["grant", "client"])
def test_token_that_something_else_ended_is_not_valid(
    grace: PortalUser, flow: Flow, make: Factory, acme: Any, ending: str, database: Database
) -> None:
    token = flow.tokens()["access_token"]
    with make.app.app_context():
        if ending == "client":
            update_client(make.system(acme), flow.client.client_id, {"status": "disabled"})
        else:
            from app.operations.grants.grant_lists import list_grants

            [grant] = list_grants(make.actor(acme)).items
            revoke_grant(make.actor(acme), grant.public_id)
    page = inspect(grace, token)
    assert "Valid" not in page and ("Not accepted" if ending == "client" else "Revoked") in page


def test_token_of_another_developers_client_is_unknown(
    grace: PortalUser, flow: Flow, make: Factory, acme: Any, portal_user: Any
) -> None:
    """The same words as for a token that does not exist, and no revocation."""
    hank = portal_user(acme, "developer")
    tokens = flow.tokens()
    for name, kind in (("access_token", "at"), ("refresh_token", None)):
        page = inspect(hank, tokens[name])
        assert "Unknown" in page and "Orchard" not in page and "bob@" not in page
        if kind is not None:
            absent = inspect(hank, new_token(kind, acme.id))
            assert absent.split("Inspect", 2)[-1] == page.split("Inspect", 2)[-1]
        hank.get("/inspect")
        assert hank.send("/inspect", token=tokens[name], action="revoke").status_code == 400
    assert flow.is_alive(tokens["access_token"])
    page = inspect(hank, tokens["id_token"])
    assert "Verified" in page and "Orchard" not in page, (
        "signature and contents are public, the client is not"
    )


def test_forged_refresh_token_of_a_real_grant_is_unknown(grace: PortalUser, flow: Flow, acme: Any) -> None:
    real = parse_token(flow.tokens()["refresh_token"])
    assert real is not None and real.grant_id is not None
    assert "Unknown" in inspect(grace, new_refresh_token(acme.id, real.grant_id, b"k" * 32))


def test_auditor_reads_and_cannot_revoke(portal_user: Any, acme: Any, flow: Flow) -> None:
    auditor, token = portal_user(acme, "auditor"), flow.tokens()["access_token"]
    page = inspect(auditor, token)
    assert "Valid" in page and "Revoke this token" not in page
    auditor.get("/inspect")
    assert auditor.send("/inspect", token=token, action="revoke").status_code == 400
    assert flow.is_alive(token)


def test_member_is_refused(portal_user: Any, acme: Any) -> None:
    assert portal_user(acme, None).get("/inspect").status_code == 403


def test_token_of_another_issuer_is_only_decoded(
    grace: PortalUser, flow: Flow, make: Factory, portal_user: Any
) -> None:
    globex = make.organization("globex", name="Globex", settings=SETTINGS)
    hank = portal_user(globex)
    hank.base = "/portal/globex"
    tokens = flow.tokens()
    for name in ("access_token", "refresh_token", "id_token"):
        page = inspect(hank, tokens[name])
        assert "Another issuer" in page and "only decoded" in page and "Orchard" not in page
    for audience in ([1, {}], 5, None, True, {"a": 1}):
        claims = {"iss": "https://accounts.example", "exp": 1e300, "aud": audience}
        assert "Another issuer" in inspect(grace, jwt_of(claims)), audience


def test_time_beyond_the_calendar_of_the_reader_is_shown_as_a_number(app: Flask, grace: PortalUser) -> None:
    """9999-12-31T23:59:59Z, which many products write for never, is in the year 10000 in Tokyo."""
    with app.app_context():
        db.session.execute(update(User).values(profile={"zoneinfo": "Asia/Tokyo"}))
        db.session.commit()
    token = jwt_of({"iss": "https://accounts.example", "exp": 253402300799})
    assert "Expires 253402300799" in inspect(grace, token)


@each("kind", sorted(set(KINDS) - {"at", "rt"}))
def test_secret_pasted_by_mistake_is_named(grace: PortalUser, acme: Any, kind: str) -> None:
    page = inspect(grace, new_token(kind, acme.id))
    assert f"This looks like {KINDS[kind]}, not a token." in page


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hello", "This is not a token"),
        ("a.b.c", "This is not a token"),
        ("e30.e30.", "Another issuer"),
        ("a.b.c.d.e", "encrypted JWT"),
        ("gth_cs_abc", "This looks like a client secret that is incomplete"),
        ("gth_zz_abc", "This looks like a token that is incomplete"),
        ("x" * 20_001, "Paste one token"),
        ("[" * 5000 + ".e30.", "This is not a token"),
        ("é.é.é", "This is not a token"),
        (jwt_of({"iss": "https://accounts.example", "half": "\ud800"}), "This is not a token"),
    ],
)
def test_garbage_gets_a_clear_error(grace: PortalUser, text: str, said: str) -> None:
    assert said in inspect(grace, text)


def test_error_about_pasted_text_is_in_the_language_of_the_page(grace: PortalUser) -> None:
    grace.http.environ_base["HTTP_ACCEPT_LANGUAGE"] = "de"
    assert "Das ist wohl ein Client-Secret, aber unvollständig" in inspect(grace, "gth_cs_abc")
    assert "Das ist kein Token." in inspect(grace, "hello")


def test_token_is_in_no_log_and_no_table(
    grace: PortalUser, flow: Flow, database: Database, caplog: pytest.LogCaptureFixture, capsys: Any
) -> None:
    token = flow.tokens()["access_token"]
    before = database.query("SELECT COUNT(*) FROM audit_events")
    with caplog.at_level(logging.DEBUG):
        inspect(grace, token)
    assert token not in caplog.text + capsys.readouterr().err
    assert grace.page is not None and grace.page.headers["Cache-Control"] == "no-store"
    assert database.query("SELECT COUNT(*) FROM audit_events") == before
