"""form_post responses: the redirect parameters, escaped, sent only to the registered URI."""

from __future__ import annotations

import re

import pytest
from werkzeug.test import TestResponse

from tests.oauth.conftest import REDIRECT_URI, Flow, location, query_of
from tests.support.form_browser import Form, Page

pytestmark = pytest.mark.either


def form_of(answer: TestResponse) -> Form:
    """Return the form that is posted to the client."""
    assert answer.status_code == 200, answer.text
    return Page("", 200, answer.text).form_with("authorization-continue")


def test_code_is_sent_by_form_post(flow: Flow) -> None:
    """Form Post Response Mode; MX-1: with ``iss``; nothing in a URL."""
    answer = flow.authorize(response_mode="form_post")
    form = form_of(answer)
    values = dict(form.values)
    assert (form.action, form.method) == (REDIRECT_URI, "POST")
    assert set(values) == {"code", "state", "iss"}
    assert (values["state"], values["iss"]) == ("s", flow.issuer)
    assert flow.redeem(values["code"]).status_code == 200
    assert "Location" not in answer.headers


@pytest.mark.parametrize("state", ['say "hi" & <b>', "ümlaut ☃", "a+b%20c", "'><script>alert(1)</script>"])
def test_state_is_returned_unchanged(flow: Flow, state: str) -> None:
    """ST-1."""
    answer = flow.authorize(response_mode="form_post", state=state)
    assert dict(form_of(answer).values)["state"] == state
    assert "<script>alert" not in answer.text


def test_errors_are_sent_by_form_post(flow: Flow) -> None:
    for changes in ({"scope": "other"}, {"prompt": "none login"}, {"max_age": "x"}):
        values = dict(form_of(flow.authorize(response_mode="form_post", **changes)).values)
        assert "error" in values and "code" not in values
        assert (values["state"], values["iss"]) == ("s", flow.issuer)


def test_wrong_redirect_uri_shows_an_error_page(flow: Flow) -> None:
    """OR-1."""
    answer = flow.authorize(response_mode="form_post", redirect_uri="https://evil.example/")
    assert answer.status_code == 400 and "evil.example" not in answer.text


def test_form_post_page_may_only_submit_its_form(flow: Flow) -> None:
    """HD-1, HD-3: it contains a code."""
    answer = flow.authorize(response_mode="form_post")
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "form-action https:" in policy and "'unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["Cache-Control"] == "no-store"
    assert not re.search(r"<script(?![^>]*src=)|onload=|onclick=", answer.text)
    [script] = re.findall(r"<script[^>]*form_post\.js[^>]*>", answer.text)
    # Browsers without modules skip those.
    assert "type=" not in script and "defer" in script


def test_decision_is_answered_by_form_post(asking: Flow) -> None:
    page = asking.consent(response_mode="form_post")
    assert "code" in dict(form_of(asking.decide(page)).values)
    page = asking.consent(response_mode="form_post", prompt="consent")
    assert dict(form_of(asking.decide(page, "consent-deny")).values)["error"] == "access_denied"


@pytest.mark.parametrize("mode", ["fragment", "web_message", "jwt", "x"])
def test_unsupported_response_modes_are_reported_by_query(flow: Flow, mode: str) -> None:
    """OI-3: no code in a fragment."""
    answer = flow.authorize(response_mode=mode)
    assert query_of(answer)["error"] == "invalid_request"
    assert "#" not in location(answer)


def test_custom_uri_scheme_cannot_use_form_post(flow: Flow) -> None:
    uri = "com.example.app:/callback"
    app = flow.other_client(type="native", redirect_uris=[uri], token_endpoint_auth_method="none")
    answer = app.authorize(response_mode="form_post", redirect_uri=uri)
    assert location(answer).startswith(f"{uri}?error=invalid_request")


def test_posted_request_is_equivalent_to_a_get(flow: Flow) -> None:
    """Core 3.1.2.1, CF-1: it only starts a request, so it needs no CSRF token."""
    answer = flow.http.post("/oauth/authorize", data=flow.parameters())
    assert "code" in query_of(answer)


def test_cross_site_post_becomes_a_get_with_cookies(flow: Flow) -> None:
    """Browsers omit SameSite=Lax cookies from a cross-site form, and without them the session would be lost."""
    headers = {"Sec-Fetch-Site": "cross-site"}
    answer = flow.app.test_client().post(
        "/oauth/authorize", data=flow.parameters(state="a b&c"), headers=headers
    )
    assert answer.status_code == 303 and location(answer).startswith("/oauth/authorize?")
    back = query_of(flow.http.get(location(answer)))
    assert back["state"] == "a b&c" and "code" in back
    twice = flow.app.test_client().post(
        "/oauth/authorize?state=again", data=flow.parameters(), headers=headers
    )
    assert query_of(twice)["error"] == "invalid_request"


def test_prompt_none_error_is_sent_by_form_post(flow: Flow) -> None:
    """Never a sign-in page."""
    stranger = Flow(flow.app, flow.app.test_client(), flow.make, flow.client, flow.user)
    values = dict(form_of(stranger.authorize(response_mode="form_post", prompt="none")).values)
    assert values["error"] == "login_required"
