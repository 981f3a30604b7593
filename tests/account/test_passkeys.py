"""Passkey pages: forms, rejections and redirects (MF-5, MF-6)."""

from __future__ import annotations

import html
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from werkzeug.test import TestResponse

from app.operations.store import clock
from tests.account.conftest import Visitor
from tests.factories import Factory, MadeUser
from tests.support.security_key import Authenticator

_ASKED = re.compile(r"data-passkey='([^']+)'")
_HIDDEN = re.compile(r'<input type="hidden" name="([^"]+)" value="([^"]*)"')


def asked(page: TestResponse) -> dict[str, Any]:
    """Return the passkey options of the page."""
    found = _ASKED.search(page.text)
    assert found is not None, page.text[:2000]
    options: dict[str, Any] = json.loads(html.unescape(found[1]))
    return options


class Ada:
    """A user at a browser with an authenticator."""

    def __init__(self, visitor: Visitor, user: MadeUser) -> None:
        self.visitor, self.user, self.key = visitor, user, Authenticator()
        self.home = f"/organizations/{user.organization.slug}"
        self.list = f"{self.home}/account/security/passkeys"

    def register(self) -> TestResponse:
        """Submit the form of a new passkey."""
        page = self.visitor.get(f"{self.list}/add")
        return self.visitor.post(f"{self.list}/add", answer=self.key.create(asked(page)), name="Phone")

    def sign_out(self) -> None:
        """Replace the browser by a new one."""
        self.visitor.http = self.visitor.http.application.test_client()

    def sign_in(self) -> TestResponse:
        """Submit the passkey form of the sign-in page."""
        page = self.visitor.get(f"{self.home}/login")
        return self.visitor.post(f"{self.home}/login/passkey", answer=self.key.get(asked(page)))


@pytest.fixture
def ada(visitor: Visitor, make: Factory) -> Ada:
    user = make.user(make.organization(), email="ada@acme.example")
    visitor.sign_in(user)
    return Ada(visitor, user)


def test_added_passkey_signs_in(ada: Ada) -> None:
    made = ada.register()
    assert "recovery-codes" in ada.visitor.get(made.location).text
    assert "Phone" in ada.visitor.get(ada.list).text
    ada.sign_out()
    answer = ada.sign_in()
    assert (answer.status_code, answer.headers["Location"]) == (303, f"{ada.home}/account")


def test_passkey_is_required_after_the_password(ada: Ada) -> None:
    """MF-6."""
    ada.register()
    ada.sign_out()
    answer = ada.visitor.sign_in(ada.user)
    assert "/login/verify?" in answer.headers["Location"]
    page = ada.visitor.get(answer.headers["Location"])
    hidden = {name: html.unescape(value) for name, value in _HIDDEN.findall(page.text)}
    fields = {"sign_in": hidden["sign_in"], "answer": ada.key.get(asked(page))}
    answer = ada.visitor.post(f"{ada.home}/login/verify/passkey", **fields)
    assert (answer.status_code, answer.headers["Location"]) == (303, f"{ada.home}/account")
    ada.visitor.get(f"{ada.home}/login?reauthenticate=1")
    again = ada.visitor.post(f"{ada.home}/login/verify/passkey", **fields)
    assert "ended=1" in again.headers["Location"]


def test_unknown_passkey_gets_a_new_challenge(ada: Ada) -> None:
    """Passkey autofill does not offer the same passkey at once."""
    ada.register()
    ada.sign_out()
    page = ada.visitor.get(f"{ada.home}/login")
    ada.key.origin = "http://evil.example"
    answer = ada.visitor.post(f"{ada.home}/login/passkey", answer=ada.key.get(asked(page)))
    assert answer.status_code == 400
    assert "This passkey doesn't work here" in answer.text
    assert asked(answer)["challenge"] != asked(page)["challenge"]
    assert 'autocomplete="username webauthn"' in page.text
    assert "data-autofill" in page.text and "data-autofill" not in answer.text


@pytest.mark.parametrize("answer", ["", "{}", "\x00", "A" * 40_000])
def test_malformed_passkey_answer_is_rejected(ada: Ada, answer: str) -> None:
    ada.sign_out()
    ada.visitor.get(f"{ada.home}/login")
    refused = ada.visitor.post(f"{ada.home}/login/passkey", answer=answer)
    assert refused.status_code == 400 and "refusal" in refused.text


def test_passkey_from_another_site_is_rejected(ada: Ada) -> None:
    """CF-1: the CSRF token and the origin check protect it."""
    ada.register()
    ada.sign_out()
    page = ada.visitor.get(f"{ada.home}/login")
    path, answer = f"{ada.home}/login/passkey", ada.key.get(asked(page))
    assert ada.visitor.http.post(path, data={"answer": answer}).status_code == 400
    away = ada.visitor.post(path, headers={"Sec-Fetch-Site": "cross-site"}, answer=answer)
    assert away.status_code == 400 and "form_expired" in away.text
    assert ada.visitor.post(path, answer=answer).status_code == 303


def test_passkey_options_name_no_user(ada: Ada) -> None:
    """EN-1: they do not depend on existing passkeys."""
    ada.register()
    answer = ada.visitor.http.get(f"{ada.home}/login/passkey")
    assert answer.get_json()["allowCredentials"] == []
    assert answer.headers["Cache-Control"] == "no-store"


def test_sign_in_without_passkeys_offers_none(visitor: Visitor, make: Factory) -> None:
    """authentication.passkeys.passwordless."""
    acme = make.organization(settings={"authentication": {"passkeys": {"passwordless": False}}})
    page = visitor.get(f"/organizations/{acme.slug}/login").text
    assert "data-passkey" not in page and 'autocomplete="username"' in page
    assert visitor.get(f"/organizations/{acme.slug}/login/passkey").status_code == 409


def test_passkey_removal_requires_a_recent_sign_in(ada: Ada, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = datetime.now(UTC)
    monkeypatch.setattr(clock, "now", lambda: begun + timedelta(minutes=11))
    answer = ada.visitor.get(f"{ada.list}/add")
    assert answer.status_code == 303
    assert answer.headers["Location"].startswith(f"{ada.home}/login?next=")


def test_passkey_of_another_user_is_not_found(ada: Ada, make: Factory, visitor: Visitor) -> None:
    """TN-1 within an organization: the same response as for an unknown passkey."""
    ada.register()
    found = re.search(r"passkeys/(pky_\w+)", ada.visitor.get(ada.list).text)
    assert found is not None
    ada.sign_out()
    visitor.sign_in(make.user(ada.user.organization))
    other, absent = (visitor.get(f"{ada.list}/{name}") for name in (found[1], "pky_" + "0" * 26))
    assert other.status_code == absent.status_code == 404
    bare = re.compile(r"req_\w+|/account/security/passkeys/\w+")
    assert bare.sub("", other.text) == bare.sub("", absent.text)


def test_invalid_passkey_name_is_explained(ada: Ada) -> None:
    ada.register()
    page = ada.visitor.get(ada.list)
    path = re.search(r"/account/security/passkeys/pky_\w+", page.text)
    assert path is not None
    assert "Your recovery codes will stop working." in ada.visitor.get(ada.home + path[0]).text
    refused = ada.visitor.post(ada.home + path[0], name="x" * 61)
    assert refused.status_code == 400 and "Use at most 60 characters." in refused.text
