"""The authorization endpoint: responses to the client, sign-in, consent and request binding."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from app.extensions import db
from app.models.grant import AuthorizationRequest
from app.operations.authorization.authorization_requests import (
    AuthorizationRequestRecord,
    RequestEnded,
    complete_request,
    deny_request,
)
from app.operations.clients.clients import update_client
from app.operations.directory import lookups
from app.operations.directory.lookups import find_client
from app.operations.store import clock
from app.rules.actor import Actor
from tests.factories import Factory
from tests.oauth.conftest import (
    FAST_KEYS,
    REDIRECT_URI,
    Flow,
    audited,
    change_rows,
    is_sign_in,
    location,
    on_another_worker,
    query_of,
    sign_in_on_page,
)
from tests.oauth.test_id_token import claims_of
from tests.support.cases import each
from tests.support.databases import Database
from tests.support.form_browser import Page

pytestmark = pytest.mark.either
# What replaces the email of a deleted user.
DELETED = "usr_01m83zp94aehz9733wdmmm9d6d"


@pytest.mark.parametrize(
    "state", ["s", "a b+c&d=e#f", "ümlaut ☃ 🦉", 'say "hi"', "x" * 2048, "%20", "<script>"]
)
def test_state_is_returned_unchanged(flow: Flow, state: str) -> None:
    """ST-1, MX-1."""
    answer = flow.authorize(state=state)
    assert (query_of(answer)["state"], query_of(answer)["iss"]) == (state, flow.issuer)
    assert query_of(flow.authorize(state=state, scope="other"))["state"] == state


def test_missing_state_is_not_added(flow: Flow) -> None:
    """ST-1."""
    assert set(query_of(flow.authorize(state=None))) == {"code", "iss"}
    assert "state" not in query_of(flow.authorize(state=None, scope="other"))


def test_redirect_uri_query_is_preserved(flow: Flow) -> None:
    """RU-6."""
    uri = "https://orchard.example/callback?flag&k=a%20b+c"
    other = flow.other_client(redirect_uris=[uri], trust="first_party")
    assert location(other.authorize()).startswith(uri + "&code=")
    assert location(other.authorize(scope="other")).startswith(uri + "&error=")


def test_redirects_are_303_and_not_cached(asking: Flow) -> None:
    """RU-7."""
    for answer in (asking.authorize(), asking.authorize(scope="other"), asking.decide(asking.consent())):
        assert answer.status_code == 303
        assert answer.headers["Cache-Control"] == "no-store"
    assert asking.decide(asking.consent(prompt="consent")).headers["Referrer-Policy"] == "no-referrer"


def test_get_and_post_are_equivalent(flow: Flow) -> None:
    """OIDC Core 3.1.2.1: order does not matter and unknown parameters are ignored."""
    parameters = dict(reversed(flow.parameters(unknown="x", display="popup", ui_locales="tlh").items()))
    assert "code" in query_of(flow.http.post("/oauth/authorize", data=parameters))
    assert "code" in query_of(flow.http.get("/oauth/authorize", query_string=parameters))
    assert flow.http.post("/oauth/authorize", json=parameters).status_code == 400


@each("name", ["display", "ui_locales", "claims_locales", "login_hint", "unknown"])
@each("value", ["", "x", "de-CH en", 'ü"<>☃', "a" * 3000, "a\r\nb"])
def test_invalid_hint_parameters_are_ignored(flow: Flow, name: str, value: str) -> None:
    """A signed-out user still gets the sign-in page."""
    assert "code" in query_of(flow.authorize(**{name: value}))
    stranger = Flow(flow.app, flow.app.test_client(), flow.make, flow.client, flow.user)
    answer = stranger.authorize(**{name: value})
    assert is_sign_in(answer, flow)
    assert stranger.http.get(location(answer)).status_code == 200


def test_signed_out_user_signs_in_and_returns_to_the_flow(flow: Flow, database: Database) -> None:
    browser = flow.app.test_client()
    stranger = Flow(flow.app, browser, flow.make, flow.client, flow.user)
    answer = stranger.authorize()
    assert is_sign_in(answer, flow)
    back = browser.get(location(sign_in_on_page(stranger, answer)))
    assert location(back).startswith(REDIRECT_URI) and set(query_of(back)) == {"code", "state", "iss"}
    assert stranger.redeem(query_of(back)["code"]).status_code == 200


def test_pages_contain_only_the_request_id(asking: Flow) -> None:
    """IN-1."""
    page = asking.consent(nonce="the-nonce", state="the-state")
    form = Page("", 200, page.text).form_with("consent-allow")
    assert {name for name, _ in form.values} == {"csrf_token", "lasts", "request", "scope"}
    assert "the-state" not in page.text and "the-nonce" not in page.text


@pytest.mark.parametrize(
    ("creator", "words"),
    [("dev@acme.example", "Registered by dev@acme.example on"), (DELETED, "Registered on")],
)
def test_consent_page_names_the_creator_until_they_are_deleted(
    asking: Flow, make: Factory, creator: str, words: str
) -> None:
    by = replace(make.actor(asking.organization), label=creator)
    page = asking.other_client(by=by).consent()
    assert words in page.text and DELETED not in page.text


def test_oauth_parameters_in_the_decision_form_are_ignored(asking: Flow) -> None:
    """IN-1: Keycloak trusted them (CVE-2026-7571)."""
    evil = {
        "redirect_uri": "https://evil.example/",
        "client_id": asking.other_client().client.client_id,
        "state": "evil",
        "code_challenge": "e" * 43,
        "nonce": "evil",
        "response_mode": "fragment",
    }
    answer = asking.decide(asking.consent(nonce="mine"), **evil)
    assert location(answer).startswith(REDIRECT_URI + "?") and query_of(answer)["state"] == "s"
    document = asking.redeem(query_of(answer)["code"]).get_json()
    assert claims_of(asking, document["id_token"])["nonce"] == "mine"


def test_decision_requires_csrf_token_and_same_origin(asking: Flow) -> None:
    """CF-1."""
    page = asking.consent()
    assert asking.decide(page, csrf_token=None).status_code == 400
    assert asking.decide(page, csrf_token="wrong").status_code == 400
    form = Page("", 200, page.text).form_with("consent-allow")
    values = dict(form.values) | {"decision": "allow"}
    for header in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}, {"Origin": "null"}):
        assert asking.http.post(form.action, data=values, headers=header).status_code == 400
    assert "code" in query_of(asking.decide(page))


def is_ended(answer) -> bool:
    return answer.status_code == 400 and "Location" not in answer.headers and "request_ended" in answer.text


def test_request_can_be_decided_only_once(asking: Flow, database: Database) -> None:
    """IN-2."""
    for button in ("consent-allow", "consent-deny"):
        page = asking.consent(prompt="consent")
        assert asking.decide(page, button).status_code == 303
        for again in ("consent-allow", "consent-deny"):
            answer = asking.decide(page, again)
            assert is_ended(answer)
            assert "already completed" in answer.text and answer.text.count("Go back to the app") == 1
    assert database.count("authorization_codes") == 1


def test_concurrent_decisions_apply_once(asking: Flow, database: Database) -> None:
    """IN-2: the row count of one UPDATE decides, not what either request has read."""
    asking.consent()
    with asking.app.app_context():
        row = db.session.query(AuthorizationRequest).one()
        actor = Actor.anonymous(asking.organization.id)
        client = find_client(asking.client.client_id)
        assert client is not None
        view = AuthorizationRequestRecord(
            row.id, row.organization_id, client, row.parameters, row.created_at, row.shown_digest, None, None
        )
        deny_request(actor, client, view)
        for decide_again in (
            lambda: deny_request(actor, client, view),
            lambda: complete_request(actor, view),
        ):
            with pytest.raises(RequestEnded):
                decide_again()
    assert audited(database, "consent.denied") == 1


def test_request_is_bound_to_its_browser(asking: Flow) -> None:
    """IN-2: even the same user with the exact URL cannot continue it in another browser."""
    resume = location(asking.authorize())
    elsewhere = asking.app.test_client()
    asking.make.sign_in(asking.user, elsewhere)
    assert is_ended(elsewhere.get(resume))
    assert asking.http.get(resume).status_code == 200


def test_request_of_another_organization_is_unknown(asking: Flow, make: Factory) -> None:
    """TN-6."""
    resume = location(asking.authorize())
    there = make.organization(settings=FAST_KEYS)
    assert is_ended(asking.http.get(resume.replace(asking.organization.slug, there.slug)))


@pytest.mark.parametrize("token", ["", "x", "gth_ar_0abcd123", "ü", "a" * 3000])
def test_unknown_authorization_request_is_reported_as_ended(asking: Flow, token: str) -> None:
    path = f"/organizations/{asking.organization.slug}/oauth/authorize/resume"
    assert is_ended(asking.http.get(path, query_string={"request": token}))
    assert is_ended(asking.http.get(path))


def test_authorization_request_expires_after_half_an_hour(asking: Flow) -> None:
    """IN-2."""
    page = asking.consent()
    with asking.app.app_context():
        ago = clock.now() - timedelta(seconds=1)
        row = db.session.query(AuthorizationRequest).one()
        assert row.expires_at - row.created_at == timedelta(minutes=30)
    change_rows(asking, AuthorizationRequest, expires_at=ago)
    assert is_ended(asking.decide(page))


def test_removed_redirect_uri_ends_the_flow_with_an_error_page(asking: Flow, database: Database) -> None:
    """RU-5, OR-1: checked at the decision and after sign-in; no redirect to the removed URI."""
    page, resume = asking.consent(), location(asking.authorize(state="t"))
    with asking.app.app_context(), on_another_worker():
        changes = {"redirect_uris": [REDIRECT_URI + "2"]}
        update_client(asking.make.system(asking.organization), asking.client.client_id, changes)
    for answer in (asking.decide(page), asking.decide(page, "consent-deny"), asking.http.get(resume)):
        assert answer.status_code == 400 and "Location" not in answer.headers
    assert database.count("authorization_codes") == 0


def test_request_without_scope_gets_all_scopes_of_the_client(flow: Flow) -> None:
    """RFC 6749 section 3.3: the user sees and allows them, and the response says which they are."""
    for scope in (None, ""):
        tokens = flow.redeem(flow.code(scope=scope)).get_json()
        assert tokens["scope"].split() == list(flow.client.registered.client.scopes)
    assert query_of(flow.authorize(scope=None, prompt="none"))["code"]


def test_client_is_read_again_before_a_refusal(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another machine has registered the redirect URI a moment ago."""
    flow.sign_in()
    with flow.app.app_context():
        client = find_client(flow.client.client_id)
    assert client is not None
    document = {**client.document, "redirect_uris": ["https://orchard.example/before"]}
    outdated = dataclasses.replace(client, document=document, version=client.version - 1)

    def find_outdated(client_id: str, *, fresh: bool = False) -> Any:
        return find_client(client_id, fresh=True) if fresh else outdated

    monkeypatch.setattr(lookups, "find_client", find_outdated)
    assert flow.code()
    monkeypatch.setattr(lookups, "find_client", lambda *_, **__: outdated)
    assert flow.authorize().status_code == 400
