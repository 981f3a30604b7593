"""From the setup link to a token in the playground, through the pages alone: at most six forms."""

from __future__ import annotations

import re
from html import unescape
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest
from flask import Flask

from app.operations.organizations.setup import issue_setup_token
from tests.factories import PASSWORD
from tests.support.form_browser import Form, Forms

MAX_FORMS = 6


class Newcomer:
    """A browser that follows the links and sends the forms of its page, and counts these."""

    def __init__(self, app: Flask) -> None:
        self.http = app.test_client()
        self.home = app.config["TEST_BASE_URL"]
        self.sent = 0
        self.url, self.text = "", ""

    def open(self, url: str) -> None:
        """Open the URL and follow redirects."""
        self._show(self.http.get(self._below(url)), url)

    def press(self, button: str, **typed: str) -> None:
        """Send the form with these fields and a button of this id, or without one; fields are typed by name."""
        form = next((form for form in self._forms() if _fits(form, button, typed)), None)
        assert form is not None, (
            f"no form with {button!r} and {sorted(typed)} on {self.url}:\n{self.text[-3000:]}"
        )
        values: dict[str, list[str]] = {}
        for name, value in form.values:
            if name not in typed:
                values.setdefault(name, []).append(value)
        name, value = form.buttons[button]
        if name:
            values[name] = [value]
        self.sent += 1
        url = urljoin(self.url, form.action or self.url)
        headers = {"Origin": self.home, "Sec-Fetch-Site": "same-origin"}
        self._show(self.http.post(self._below(url), data={**values, **typed}, headers=headers), url)

    def follow(self, pattern: str) -> None:
        """Open the link of the page whose tag and text match the pattern."""
        for tag, text in re.findall(r"(<a [^>]+>)(.*?)</a>", self.text, re.DOTALL):
            if re.search(pattern, tag + text):
                href = re.search(r'href="([^"]+)"', tag)
                assert href is not None
                self.open(urljoin(self.url, unescape(href[1])))
                return
        raise AssertionError(f"no link {pattern} on {self.url}:\n{self.text[:3000]}")

    def _forms(self) -> list[Form]:
        reader = Forms()
        reader.feed(self.text)
        return reader.forms

    def _show(self, answer: Any, url: str) -> None:
        while answer.status_code in {302, 303}:
            url = urljoin(url, answer.location)
            answer = self.http.get(self._below(url))
        assert answer.status_code == 200, f"{url}: {answer.status_code}\n{answer.text[:3000]}"
        self.url, self.text = url, answer.text

    def _below(self, url: str) -> str:
        parts = urlsplit(urljoin(f"{self.home}/", url))
        assert url.startswith("/") or f"{parts.scheme}://{parts.netloc}" == self.home.rstrip("/"), url
        return f"{parts.path}?{parts.query}" if parts.query else parts.path


def _fits(form: Form, button: str, typed: dict[str, str]) -> bool:
    return form.method == "POST" and button in form.buttons and typed.keys() <= set(form.ids.values())


@pytest.mark.either
def test_first_token_takes_at_most_six_forms(app: Flask) -> None:
    with app.app_context():
        token = issue_setup_token()
    newcomer = Newcomer(app)
    newcomer.open(f"/setup?token={token}")
    newcomer.press(
        "setup-submit",
        email="rosa@orchard.example",
        name="Rosa",
        password=PASSWORD,
        password_again=PASSWORD,
        organization_name="Orchard",
    )
    newcomer.follow("setup-sign-in")
    newcomer.press("login-submit", email="rosa@orchard.example", password=PASSWORD)
    newcomer.follow("Web app")
    newcomer.press("", name="Fruit Shop", redirect_uris="http://localhost:3000/callback")
    newcomer.follow(r"playground\?client=")
    newcomer.press("build")
    newcomer.follow('id="go"')
    if "consent-allow" in newcomer.text:
        newcomer.press("consent-allow")
    newcomer.press("token")

    assert "access_token" in newcomer.text
    assert newcomer.sent <= MAX_FORMS
