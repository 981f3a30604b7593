"""Every form of the portal and account pages redirects to its result, and a reload of the result changes nothing.

A secret is on the page that the redirect leads to, once: not in a URL, not readable in a cookie, and not in a reload.
"""

from __future__ import annotations

import re
from urllib.parse import urljoin, urlsplit

import pytest
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from tests.support.applications import forget
from tests.support.request_world import ValidRequest
from tests.support.stored_state import StateKeeper, change_between
from tests.support.valid_requests import Requests

pytestmark = pytest.mark.either
SECRET = re.compile(
    r"gth_(?:cs|ia|iv|pr|pv)_[A-Za-z0-9_-]{20,}|whsec_[A-Za-z0-9+/=]{20,}|<li><code>[a-z0-9-]{10,}</code>"
)
# Written by requests of any page, whatever they show.
NOTED = {"last_seen_at", "last_used_at"}
# Their message says what to do next, and its page is about nothing else.
NEXT_STEPS = {
    "account.sign_up_page",
    "account.confirm_registration_page",
    "account.forgot_password_page",
    "account.reset_password_page",
}


def send(app: Flask, request: ValidRequest) -> tuple[FlaskClient, TestResponse]:
    """Send the request and return a browser with the cookies that it has then, and the response."""
    answer = request.send(app)
    browser = app.test_client()
    for pair in filter(None, request.cookies.split("; ")):
        browser.set_cookie(*pair.partition("=")[::2], domain="localhost")
    for header in answer.headers.getlist("Set-Cookie"):
        name, _, value = header.partition(";")[0].partition("=")
        browser.set_cookie(name, value, domain="localhost")
        if not value:
            browser.delete_cookie(name, domain="localhost")
    return browser, answer


def follow(browser: FlaskClient, answer: TestResponse, path: str) -> tuple[str, TestResponse]:
    """Follow redirects within this service and return the path and the response of the last page."""
    for _ in range(5):
        if answer.status_code != 303:
            break
        path = urljoin(path, answer.headers["Location"])
        assert not SECRET.search(path)
        answer = browser.get(path)
    return path, answer


@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", ["portal", "account"])
def test_reloading_the_result_of_a_form_changes_nothing_and_shows_no_secret_again(
    app: Flask, requests: Requests, keeper: StateKeeper, part: str
) -> None:
    failed: list[str] = []
    secrets: set[str] = set()
    for request in getattr(requests, part)():
        if request.method != "POST":
            continue
        before = keeper.read()
        browser, answer = send(app, request)
        sent = keeper.latest()
        if answer.status_code == 200 and change_between(before, sent, columns=NOTED):
            failed.append(f"{request.name}: its result is not on a page of its own")
        cookies = " ".join(answer.headers.getlist("Set-Cookie"))
        path, shown = follow(browser, answer, request.path)
        if answer.status_code == 303 and not path.startswith("http"):
            found = set(SECRET.findall(shown.text))
            if found:
                secrets.add(request.name)
            shown_state = keeper.latest()
            again = browser.get(path)
            if again.status_code != 200:
                failed.append(f"{request.name}: {path} is {again.status_code} when reloaded")
            if found & set(SECRET.findall(again.text)) or any(each in cookies for each in found):
                failed.append(f"{request.name}: the secret can be read again")
            if 'role="status"' in again.text and request.name not in NEXT_STEPS:
                failed.append(f"{request.name}: the notice is on {path} when reloaded")
            if "done=" in urlsplit(path).query:
                failed.append(f"{request.name}: a notice in the URL {path}")
            if changes := change_between(shown_state, keeper.latest(), columns=NOTED):
                failed.append(f"{request.name}: reloading {path} changed {changes}")
        keeper.put_back()
        forget(app)
    assert not failed, "\n".join(failed)
    expected = {
        "portal": {
            "portal.new_client",
            "portal.new_secret",
            "portal.reveal",
            "portal.registration_tokens",
            "portal.provisioning_token_new",
            "portal.webhook_new",
            "portal.webhook_secret",
        },
        "account": {
            "account.add_app_page",
            "account.add_passkey_page",
            "account.recovery_codes_page",
            "account.enrol_page",
            "account.enrol_passkey",
        },
    }
    assert secrets >= expected[part]
