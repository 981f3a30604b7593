"""Answers by form_post: everything a redirect would carry, escaped, to the registered address alone."""

from __future__ import annotations

import re

import pytest
from werkzeug.test import TestResponse

from tests.oauth.conftest import REDIRECT_URI, Flow, location, query_of
from tests.support.person import Form, Page


def form_of(answer: TestResponse) -> Form:
    """The form that goes to the client."""
    assert answer.status_code == 200, answer.text
    return Page("", 200, answer.text).form_with("authorization-continue")


def test_code_is_sent_by_form_post(flow: Flow) -> None:
    """Form Post Response Mode; MX-1: with ``iss``; nothing of it in an address. protocol: form_post."""
    answer = flow.authorize(response_mode="form_post")
    form = form_of(answer)
    values = dict(form.values)
    assert (form.action, form.method) == (REDIRECT_URI, "POST")
    assert set(values) == {"code", "state", "iss"}
    assert (values["state"], values["iss"]) == ("s", flow.issuer)
    assert flow.redeem(values["code"]).status_code == 200
    assert "Location" not in answer.headers


@pytest.mark.parametrize("state", ['say "hi" & <b>', "ümlaut ☃", "a+b%20c", "'><script>alert(1)</script>"])
def test_the_state_comes_back_byte_for_byte(flow: Flow, state: str) -> None:
    """ST-1."""
    answer = flow.authorize(response_mode="form_post", state=state)
    assert dict(form_of(answer).values)["state"] == state
    assert "<script>alert" not in answer.text


def test_errors_go_by_form_too(flow: Flow) -> None:
    """protocol: authorization endpoint, errors go back."""
    for changes in ({"scope": None}, {"prompt": "none login"}, {"max_age": "x"}):
        values = dict(form_of(flow.authorize(response_mode="form_post", **changes)).values)
        assert "error" in values and "code" not in values
        assert (values["state"], values["iss"]) == ("s", flow.issuer)


def test_wrong_redirect_uri_shows_an_error_page(flow: Flow) -> None:
    """OR-1."""
    answer = flow.authorize(response_mode="form_post", redirect_uri="https://evil.example/")
    assert answer.status_code == 400 and "evil.example" not in answer.text


def test_the_page_may_do_nothing_but_post(flow: Flow) -> None:
    """HD-1, HD-3: it holds a code."""
    answer = flow.authorize(response_mode="form_post")
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "form-action https:" in policy and "'unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["Cache-Control"] == "no-store"
    assert not re.search(r"<script(?![^>]*src=)|onload=|onclick=", answer.text)


def test_a_decision_is_answered_by_form_too(asking: Flow) -> None:
    page = asking.consent(response_mode="form_post")
    assert "code" in dict(form_of(asking.decide(page)).values)
    page = asking.consent(response_mode="form_post", prompt="consent")
    assert dict(form_of(asking.decide(page, "consent-deny")).values)["error"] == "access_denied"


@pytest.mark.parametrize("mode", ["fragment", "web_message", "jwt", "x"])
def test_other_modes_are_refused_by_query(flow: Flow, mode: str) -> None:
    """OI-3: no code in a fragment."""
    answer = flow.authorize(response_mode=mode)
    assert query_of(answer)["error"] == "invalid_request"
    assert "#" not in location(answer)


def test_an_apps_own_scheme_takes_no_forms(flow: Flow) -> None:
    uri = "com.example.app:/callback"
    app = flow.other_client(type="native", redirect_uris=[uri], token_endpoint_auth_method="none")
    answer = app.authorize(response_mode="form_post", redirect_uri=uri)
    assert location(answer).startswith(f"{uri}?error=invalid_request")


def test_a_request_by_form_is_a_request_by_query(flow: Flow) -> None:
    """Core 3.1.2.1, CF-1: it starts a request and decides nothing, so it carries no form token.

    protocol: authorization endpoint, GET and POST.
    """
    answer = flow.http.post("/oauth/authorize", data=flow.parameters())
    assert "code" in query_of(answer)


def test_from_another_site_it_becomes_a_get_that_has_the_cookies(flow: Flow) -> None:
    """Browsers keep SameSite=Lax cookies back from another site's form; with them gone every sign-in would be, too."""
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


def test_silence_is_kept_by_form_too(flow: Flow) -> None:
    """``prompt=none`` by form: an error, and never a page to sign in on."""
    stranger = Flow(flow.app, flow.app.test_client(), flow.make, flow.client, flow.user)
    values = dict(form_of(stranger.authorize(response_mode="form_post", prompt="none")).values)
    assert values["error"] == "login_required"
