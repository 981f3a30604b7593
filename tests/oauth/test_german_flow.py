"""A complete authorization flow in German with ui_locales."""

from __future__ import annotations

import re

import pytest

from tests.account.conftest import Visitor
from tests.account.test_languages import language_of, untranslated
from tests.factories import PASSWORD
from tests.oauth.conftest import Flow, query_of

pytestmark = pytest.mark.either


def test_ui_locales_applies_from_sign_in_to_code(asking: Flow) -> None:
    visitor = Visitor(asking.app)
    visitor.http = asking.http
    asking.http.delete_cookie(asking.make.cookie_name(asking.organization), domain="localhost")
    english = {"Accept-Language": "en-GB", "Sec-Fetch-Site": "same-origin"}
    answer = asking.authorize(ui_locales="fr de-CH", scope="openid profile email offline_access")
    page = visitor.get(answer.headers["Location"], headers=english)
    assert language_of(page) == "de" and untranslated(page) == []
    request_token = re.search(r'name="request" value="([^"]+)"', page.text)
    assert request_token is not None
    path = f"/organizations/{asking.organization.slug}/login"
    fields = {"email": asking.user.email, "request": request_token[1]}
    refused = visitor.post(path, english, password="not it at all", **fields)
    assert "E-Mail-Adresse oder Passwort ist falsch." in refused.text and untranslated(refused) == []
    signed_in = visitor.post(path, english, password=PASSWORD, **fields)
    assert signed_in.status_code == 303
    consent = visitor.get(signed_in.headers["Location"], headers=english)
    assert language_of(consent) == "de"
    assert "Ihre E-Mail-Adresse sehen" in consent.text and "Erlauben" in consent.text
    assert "Zugriff behalten, während Sie weg sind" in consent.text
    assert untranslated(consent) == []
    assert "code" in query_of(asking.decide(consent))
    apps = visitor.get(
        f"/organizations/{asking.organization.slug}/account/apps", headers={"Accept-Language": "de"}
    )
    assert "Ihren Namen sehen" in apps.text and untranslated(apps) == []


def test_unsupported_ui_locales_are_ignored(asking: Flow) -> None:
    page = asking.http.get(asking.authorize(ui_locales="tlh fr").headers["Location"])
    assert (page.status_code, language_of(page)) == (200, "en")


def test_rejected_request_is_shown_in_the_requested_language(asking: Flow) -> None:
    page = asking.authorize(ui_locales="de", redirect_uri="https://elsewhere.example/callback")
    assert (page.status_code, language_of(page)) == (400, "de")
    assert "Die Anfrage dieser App kann nicht ausgeführt werden" in page.text
