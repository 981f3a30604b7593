"""Stable URLs, ids and script-free forms for programs that drive the pages."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser
from urllib.parse import urlsplit

import pytest
from werkzeug.test import TestResponse

from tests.oauth.conftest import REDIRECT_URI, Flow, location, query_of, sign_in_on_page
from tests.support.form_browser import Form, Page

pytestmark = pytest.mark.either

ADDRESSES = {
    "policy_uri": "https://orchard.example/privacy",
    "tos_uri": "https://orchard.example/terms",
}


@pytest.fixture
def described(asking: Flow) -> Flow:
    """A client with policy and terms links. Its signed-in user needs consent."""
    return asking.other_client(name="Orchard", redirect_uris=[REDIRECT_URI], **ADDRESSES)


def in_a_fresh_browser(flow: Flow) -> Flow:
    return Flow(flow.app, flow.app.test_client(), flow.make, flow.client, flow.user)


def sign_in_page(flow: Flow) -> TestResponse:
    stranger = in_a_fresh_browser(flow)
    return stranger.http.get(location(stranger.authorize()))


def consent_page(flow: Flow) -> TestResponse:
    return flow.http.get(location(flow.authorize(prompt="consent")))


def logout_page(flow: Flow) -> TestResponse:
    return flow.http.get(f"/organizations/{flow.organization.slug}/oauth/logout", follow_redirects=True)


def device_page(flow: Flow) -> TestResponse:
    return flow.http.get(f"/organizations/{flow.organization.slug}/device")


def error_page(flow: Flow) -> TestResponse:
    return flow.authorize(redirect_uri="https://evil.example/")


def signed_out_page(flow: Flow) -> TestResponse:
    page = logout_page(flow)
    form = Page("", page.status_code, page.text).form_with("logout-confirm")
    return flow.http.post(form.action, data=dict(form.values), follow_redirects=True)


PAGES: dict[str, tuple[Callable[[Flow], TestResponse], tuple[str, ...]]] = {
    "sign-in": (sign_in_page, ("username", "password", "login-submit")),
    "consent": (consent_page, ("consent-allow", "consent-deny")),
    "device": (device_page, ("device-find",)),
    "logout": (logout_page, ("logout-confirm",)),
    "signed out": (signed_out_page, ("logged-out",)),
    "error": (error_page, ("error-title", "error-code")),
}
EACH = pytest.mark.parametrize(("get", "ids"), PAGES.values(), ids=PAGES)


class _Scripts(HTMLParser):
    """Collect what would need a script: event handler attributes and javascript URLs."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found += [
            (tag, name)
            for name, value in attributes
            if name.startswith("on") or (value or "").strip().lower().startswith("javascript:")
        ]


@EACH
def test_every_page_has_its_documented_ids(
    described: Flow, get: Callable[[Flow], TestResponse], ids: tuple[str, ...]
) -> None:
    text = get(described).text
    for name in ids:
        assert text.count(f'id="{name}"') == 1, (name, text[:3000])


@EACH
def test_pages_work_without_scripts(
    described: Flow, get: Callable[[Flow], TestResponse], ids: tuple[str, ...]
) -> None:
    """Scripts may only add convenience."""
    reader = _Scripts()
    reader.feed(get(described).text)
    assert reader.found == []


def test_every_kind_of_page_has_its_own_url(described: Flow) -> None:
    pages = [get(described) for get in (sign_in_page, consent_page, device_page, logout_page, error_page)]
    paths = [urlsplit(page.request.url).path for page in pages]
    assert len(set(paths)) == len(paths), paths


@pytest.mark.parametrize("get", [sign_in_page, consent_page], ids=["sign-in", "consent"])
def test_sign_in_page_shows_the_clients_policy_and_terms(
    described: Flow, get: Callable[[Flow], TestResponse]
) -> None:
    text = get(described).text
    assert 'id="client-logo"' in text
    for name, field in (("client-policy", "policy_uri"), ("client-tos", "tos_uri")):
        assert f'id="{name}" href="{ADDRESSES[field]}"' in text
    without = described.other_client(redirect_uris=[REDIRECT_URI])
    assert 'id="client-policy"' not in get(without).text and 'id="client-tos"' not in get(without).text


def test_complete_flow_works_with_plain_forms(described: Flow) -> None:
    """From the first request to the code."""
    stranger = in_a_fresh_browser(described)
    page = stranger.http.get(location(sign_in_on_page(stranger, stranger.authorize())))
    form: Form = Page("", page.status_code, page.text).form_with("consent-allow")
    allowed = dict([*form.values, form.buttons["consent-allow"]])
    assert "code" in query_of(stranger.http.post(form.action, data=allowed))
