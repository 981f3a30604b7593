"""The authorization endpoint: what comes back to the client, sign-in and consent, and what a request is bound to."""

from __future__ import annotations

from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from flask.testing import FlaskClient
from sqlalchemy import update

from app.extensions import db
from app.models.grant import AuthorizationRequest
from app.models.session import Session
from app.operations import clock
from app.operations.clients import update_client
from app.operations.settings import update_settings
from app.operations.transaction import transaction
from tests.factories import Factory
from tests.oauth.conftest import FAST_KEYS, REDIRECT_URI, Flow, audited, on_another_worker, query_of
from tests.oauth.test_id_token import claims_of
from tests.support.databases import Database
from tests.support.person import Page


def location(answer) -> str:
    return str(answer.headers.get("Location", ""))


def is_sign_in(answer, flow: Flow) -> bool:
    return answer.status_code == 303 and location(answer).startswith(
        f"/organizations/{flow.organization.slug}/login?"
    )


def is_consent(answer, flow: Flow) -> bool:
    path = f"/organizations/{flow.organization.slug}/oauth/authorize/resume?"
    return answer.status_code == 303 and location(answer).startswith(path)


def sign_in_on_page(flow: Flow, answer, http: FlaskClient | None = None):
    """The answer after the sign-in form of the page was filled in."""
    http = http or flow.http
    page = http.get(location(answer))
    form = Page("", page.status_code, page.text).form_with("login-submit")
    values = dict(form.values) | {
        form.ids["username"]: flow.user.email,
        form.ids["password"]: flow.user.password,
    }
    return http.post(form.action or location(answer), data=values)


@pytest.mark.parametrize(
    "state", ["s", "a b+c&d=e#f", "ümlaut ☃ 🦉", 'say "hi"', "x" * 2048, "%20", "<script>"]
)
def test_the_state_comes_back_byte_for_byte(flow: Flow, state: str) -> None:
    """ST-1, MX-1."""
    answer = flow.authorize(state=state)
    assert (query_of(answer)["state"], query_of(answer)["iss"]) == (state, flow.issuer)
    assert query_of(flow.authorize(state=state, scope=None))["state"] == state


def test_no_state_stays_no_state(flow: Flow) -> None:
    """ST-1."""
    assert set(query_of(flow.authorize(state=None))) == {"code", "iss"}
    assert "state" not in query_of(flow.authorize(state=None, scope=None))


def test_a_redirect_uris_own_query_survives(flow: Flow) -> None:
    """RU-6."""
    uri = "https://orchard.example/callback?flag&k=a%20b+c"
    other = flow.other_client(redirect_uris=[uri], trust="first_party")
    assert location(other.authorize()).startswith(uri + "&code=")
    assert location(other.authorize(scope=None)).startswith(uri + "&error=")


def test_every_way_out_is_a_303_that_nobody_keeps(asking: Flow) -> None:
    """RU-7."""
    for answer in (asking.authorize(), asking.authorize(scope=None), asking.decide(asking.consent())):
        assert answer.status_code == 303
        assert answer.headers["Cache-Control"] == "no-store"
    assert asking.decide(asking.consent(prompt="consent")).headers["Referrer-Policy"] == "no-referrer"


def test_get_and_post_are_one(flow: Flow) -> None:
    """OIDC Core 3.1.2.1; order is of no matter and what nobody knows is passed over."""
    parameters = dict(reversed(flow.parameters(unknown="x", display="popup", ui_locales="tlh").items()))
    assert "code" in query_of(flow.http.post("/oauth/authorize", data=parameters))
    assert "code" in query_of(flow.http.get("/oauth/authorize", query_string=parameters))
    assert flow.http.post("/oauth/authorize", json=parameters).status_code == 400


def test_a_stranger_signs_in_first_and_then_arrives(flow: Flow, database: Database) -> None:
    browser = flow.app.test_client()
    stranger = Flow(flow.app, browser, flow.make, flow.client, flow.user)
    answer = stranger.authorize()
    assert is_sign_in(answer, flow)
    back = browser.get(location(sign_in_on_page(stranger, answer)))
    assert location(back).startswith(REDIRECT_URI) and set(query_of(back)) == {"code", "state", "iss"}
    assert stranger.redeem(query_of(back)["code"]).status_code == 200


def test_the_pages_carry_an_id_and_nothing_of_the_request(asking: Flow) -> None:
    """IN-1."""
    page = asking.consent(nonce="the-nonce", state="the-state")
    form = Page("", 200, page.text).form_with("consent-allow")
    assert {name for name, _ in form.values} == {"csrf_token", "request", "scope"}
    assert "the-state" not in page.text and "the-nonce" not in page.text


def test_oauth_parameters_in_the_decision_count_for_nothing(asking: Flow) -> None:
    """IN-1: Keycloak's CVE-2026-7571 trusted them."""
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


def test_the_decision_needs_the_form_token_and_our_own_page(asking: Flow) -> None:
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


def test_a_request_is_decided_once(asking: Flow, database: Database) -> None:
    """IN-2."""
    for button in ("consent-allow", "consent-deny"):
        page = asking.consent(prompt="consent")
        assert asking.decide(page, button).status_code == 303
        for again in ("consent-allow", "consent-deny"):
            assert is_ended(asking.decide(page, again))
    assert database.count("authorization_codes") == 1


def test_another_browser_cannot_take_it_over(asking: Flow) -> None:
    """IN-2: signed in as the same user, and with the very address."""
    resume = location(asking.authorize())
    elsewhere = asking.app.test_client()
    asking.make.sign_in(asking.user, elsewhere)
    assert is_ended(elsewhere.get(resume))
    assert asking.http.get(resume).status_code == 200


def test_another_organization_does_not_know_it(asking: Flow, make: Factory) -> None:
    """TN-6."""
    resume = location(asking.authorize())
    there = make.organization(settings=FAST_KEYS)
    assert is_ended(asking.http.get(resume.replace(asking.organization.slug, there.slug)))


@pytest.mark.parametrize("token", ["", "x", "gth_ar_0abcd123", "ü", "a" * 3000])
def test_what_is_no_request_has_ended(asking: Flow, token: str) -> None:
    path = f"/organizations/{asking.organization.slug}/oauth/authorize/resume"
    assert is_ended(asking.http.get(path, query_string={"request": token}))
    assert is_ended(asking.http.get(path))


def change_rows(flow: Flow, model, **values) -> None:
    @transaction
    def act() -> None:
        db.session.execute(update(model).values(values))

    with flow.app.app_context():
        act()


def test_a_request_lives_half_an_hour(asking: Flow) -> None:
    """IN-2."""
    page = asking.consent()
    with asking.app.app_context():
        ago = clock.now() - timedelta(seconds=1)
        row = db.session.query(AuthorizationRequest).one()
        assert row.expires_at - row.created_at == timedelta(minutes=30)
    change_rows(asking, AuthorizationRequest, expires_at=ago)
    assert is_ended(asking.decide(page))


@pytest.mark.parametrize(
    "change",
    [
        {"name": "Your Bank"},
        {"logo_uri": "https://orchard.example/logo.png"},
        {"redirect_uris": [REDIRECT_URI, "https://orchard.example/second"]},
        {"scopes": ["openid", "profile", "email"], "grant_types": ["authorization_code"]},
        {"trust": "verified"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_consent_counts_for_what_was_shown(asking: Flow, change: dict[str, object]) -> None:
    """IN-3: also when the change was made on another worker; the page is shown again, and then it counts."""
    page = asking.consent()
    with asking.app.app_context(), on_another_worker():
        update_client(asking.make.system(asking.organization), asking.client.client_id, change)
    again = asking.decide(page)
    assert again.status_code == 200 and 'id="consent-allow"' in again.text
    assert "code" in query_of(asking.decide(again))


def test_consent_counts_for_who_saw_it(asking: Flow) -> None:
    """IN-3: somebody else signed in meanwhile, in the same browser."""
    page = asking.consent()
    asking.make.sign_in(asking.make.user(asking.organization), asking.http)
    again = asking.decide(page)
    assert again.status_code == 200 and 'id="consent-allow"' in again.text


def test_a_redirect_uri_removed_meanwhile_ends_the_flow_on_a_page(asking: Flow, database: Database) -> None:
    """RU-5: at the decision, and at coming back from sign-in; OR-1: no redirect there any more."""
    page, resume = asking.consent(), location(asking.authorize(state="t"))
    with asking.app.app_context(), on_another_worker():
        changes = {"redirect_uris": [REDIRECT_URI + "2"]}
        update_client(asking.make.system(asking.organization), asking.client.client_id, changes)
    for answer in (asking.decide(page), asking.decide(page, "consent-deny"), asking.http.get(resume)):
        assert answer.status_code == 400 and "Location" not in answer.headers
    assert database.count("authorization_codes") == 0


def test_refusing_is_told_to_the_client(asking: Flow, database: Database) -> None:
    query = query_of(asking.decide(asking.consent(), "consent-deny"))
    assert (query["error"], query["state"], query["iss"]) == ("access_denied", "s", asking.issuer)
    assert database.count("authorization_codes") == database.count("consents") == 0
    assert audited(database, "consent.denied") == 1


@pytest.mark.parametrize("decision", [None, "", "maybe", "ALLOW"])
def test_no_decision_is_none(asking: Flow, database: Database, decision: str | None) -> None:
    answer = (
        asking.decide(asking.consent(), decision=decision)
        if decision
        else asking.decide(asking.consent(), decision=())
    )
    assert answer.status_code == 200 and 'id="consent-allow"' in answer.text
    assert database.count("authorization_codes") == 0


def test_nobody_decides_without_having_seen(asking: Flow, database: Database) -> None:
    """A decision posted for a request whose page was never shown."""
    page = asking.consent(state="one")
    token = parse_qs(urlsplit(location(asking.authorize(state="two"))).query)["request"][0]
    answer = asking.decide(page, request=token)
    assert answer.status_code == 200 and database.count("authorization_codes") == 0


def test_consent_says_who_asks_for_what(asking: Flow) -> None:
    """CO-1."""
    text = asking.consent(scope="openid email offline_access").text
    assert "Orchard" in text and asking.organization.name in text and asking.user.email in text
    assert "Not reviewed by" in text and "orchard.example" in text
    assert "See your e-mail address" in text and "at most 30 days" in text


def test_what_was_allowed_is_remembered_and_not_more(asking: Flow) -> None:
    """CO-2."""
    assert "code" in query_of(asking.decide(asking.consent(scope="openid")))
    assert "code" in query_of(asking.authorize(scope="openid"))
    assert is_consent(asking.authorize(scope="openid email"), asking)
    assert is_consent(asking.authorize(scope="openid", prompt="consent"), asking)
    assert "code" in query_of(asking.decide(asking.consent(scope="openid email")))
    assert "code" in query_of(asking.authorize(scope="openid email"))


@pytest.mark.parametrize("trust", ["unverified", "verified", "first_party"])
@pytest.mark.parametrize(
    "fields",
    [
        {"type": "spa", "redirect_uris": ["https://spa.example/cb"]},
        {"type": "native", "redirect_uris": ["http://127.0.0.1/cb"]},
        {"type": "native", "redirect_uris": ["com.example.app:/cb"]},
        {"type": "native", "redirect_uris": ["https://app.example/cb"]},
        {"type": "web", "redirect_uris": ["http://localhost:3000/cb"]},
    ],
    ids=lambda fields: f"{fields['type']} {fields['redirect_uris'][0]}",
)
def test_who_cannot_prove_who_it_is_is_asked_about_each_time(flow: Flow, trust: str, fields) -> None:
    """CO-2: Doorkeeper's CVE-2023-34246; silently it gets nothing either."""
    other = flow.other_client(trust=trust, **fields)
    for _ in range(2):
        assert is_consent(other.authorize(), other)
        assert "code" in query_of(other.decide(other.consent()))
    assert query_of(other.authorize(prompt="none"))["error"] == "consent_required"


def test_a_consent_may_end(asking: Flow) -> None:
    with asking.app.app_context():
        changes = {"oauth": {"consent": {"ttl_seconds": 86400}}}
        update_settings(asking.make.system(asking.organization), asking.organization.slug, changes)
    assert "code" in query_of(asking.decide(asking.consent()))
    assert "code" in query_of(asking.authorize())
    from app.models.grant import Consent

    with asking.app.app_context():
        ago = clock.now() - timedelta(seconds=1)
    change_rows(asking, Consent, expires_at=ago)
    assert is_consent(asking.authorize(), asking)


def test_optional_scopes_can_be_left_out_and_others_cannot(asking: Flow) -> None:
    other = asking.other_client(optional_scopes=["email", "offline_access"], redirect_uris=[REDIRECT_URI])
    everything = "openid profile email offline_access"
    document = other.redeem(
        query_of(other.decide(other.consent(scope=everything), scope=["email"]))["code"]
    ).get_json()
    assert document["scope"] == "openid profile email" and "refresh_token" not in document
    answer = other.decide(other.consent(scope=everything), scope=["address", "clients:write"])
    assert other.redeem(query_of(answer)["code"]).get_json()["scope"] == "openid profile"


def test_allowing_nothing_is_refusing(asking: Flow, database: Database) -> None:
    other = asking.other_client(optional_scopes=["email", "profile"], redirect_uris=[REDIRECT_URI])
    query = query_of(other.decide(other.consent(scope="email profile"), scope=()))
    assert query["error"] == "access_denied"
    assert database.count("authorization_codes") == database.count("consents") == 0


def test_offline_access_needs_the_users_consent(asking: Flow) -> None:
    """CO-5."""
    document = asking.redeem(query_of(asking.decide(asking.consent(scope="openid")))["code"]).get_json()
    assert "refresh_token" not in document
    assert is_consent(asking.authorize(scope="openid offline_access"), asking)


def test_prompt_none_never_shows_a_page(asking: Flow) -> None:
    assert query_of(asking.authorize(prompt="none"))["error"] == "consent_required"
    asking.decide(asking.consent())
    first, second = (
        claims_of(asking, asking.tokens(scope="openid", prompt="none")["id_token"]) for _ in range(2)
    )
    assert (first["sub"], first["auth_time"]) == (second["sub"], second["auth_time"])
    change_rows(asking, Session, authenticated_at=clock_ago(asking, 600))
    assert query_of(asking.authorize(prompt="none", max_age="60"))["error"] == "login_required"
    stranger = Flow(asking.app, asking.app.test_client(), asking.make, asking.client, asking.user)
    assert query_of(stranger.authorize(prompt="none"))["error"] == "login_required"


def clock_ago(flow: Flow, seconds: int):
    with flow.app.app_context():
        return clock.now() - timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "demand",
    [{"prompt": "login"}, {"max_age": "60"}, {"max_age": "0"}, {"prompt": "select_account"}],
    ids=str,
)
def test_a_demand_for_a_fresh_sign_in_is_met_once(flow: Flow, demand: dict[str, str]) -> None:
    """SS-7: the page is shown once, ``auth_time`` moves forward, and nothing loops."""
    change_rows(flow, Session, authenticated_at=clock_ago(flow, 600), created_at=clock_ago(flow, 600))
    before = claims_of(flow, flow.tokens(scope="openid")["id_token"])["auth_time"]
    answer = flow.authorize(**demand)
    assert is_sign_in(answer, flow)
    # The old sign-in does not carry the request any further, however often it is shown.
    resume = location(answer).replace("/login?", "/oauth/authorize/resume?")
    assert is_sign_in(flow.http.get(resume), flow)
    back = flow.http.get(location(sign_in_on_page(flow, answer)))
    after = claims_of(flow, flow.redeem(query_of(back)["code"]).get_json()["id_token"])["auth_time"]
    assert after >= before + 600


def test_a_slow_consent_does_not_ask_for_the_password_again(asking: Flow) -> None:
    answer = asking.authorize(prompt="login", max_age="1")
    page = asking.http.get(location(sign_in_on_page(asking, answer)))
    change_rows(asking, Session, authenticated_at=clock_ago(asking, 300))
    change_rows(asking, AuthorizationRequest, created_at=clock_ago(asking, 400))
    assert "code" in query_of(asking.decide(page))
