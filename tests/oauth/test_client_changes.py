"""Consent is requested again after an app changed, and the page shows what is different."""

from __future__ import annotations

from typing import Any

import pytest

from app.operations.authorization.connected_apps import list_consents
from app.operations.clients.clients import update_client
from app.operations.sign_in.sessions import find_session
from tests.oauth.conftest import REDIRECT_URI, Flow, is_consent, location, query_of

pytestmark = pytest.mark.either

COUNTING = {
    "name": ({"name": "Your Bank"}, "The name (was Orchard)"),
    "logo": ({"logo_uri": "https://orchard.example/logo.png"}, "The logo"),
    "redirects": (
        {"redirect_uris": [REDIRECT_URI, "https://orchard.example/second"]},
        "The sites that you can be sent to",
    ),
    "policy": ({"policy_uri": "https://orchard.example/privacy"}, "The privacy policy"),
    "terms": ({"tos_uri": "https://orchard.example/terms"}, "The terms of service"),
}


def change(flow: Flow, fields: dict[str, Any]) -> None:
    """Change the client as an administrator."""
    with flow.app.app_context():
        update_client(flow.make.system(flow.organization), flow.client.client_id, fields)


@pytest.mark.parametrize(("fields", "words"), COUNTING.values(), ids=COUNTING)
def test_changed_app_is_asked_for_consent_again(asking: Flow, fields: dict[str, Any], words: str) -> None:
    """IN-3: consent is valid only for the app as it was shown."""
    asking.decide(asking.consent())
    assert "code" in query_of(asking.authorize())
    change(asking, fields)
    assert query_of(asking.authorize(prompt="none"))["error"] == "consent_required"
    page = asking.http.get(location(asking.authorize()))
    assert "This app has changed since you allowed it" in page.text and words in page.text
    assert "You already allowed" not in page.text, "nothing was allowed to this app yet"
    assert "code" in query_of(asking.decide(page))
    again = asking.authorize()
    assert "code" in query_of(again), "what is shown now is what counts from now on"


@pytest.mark.parametrize(
    "fields",
    [
        {"description": "For the harvest"},
        {"contacts": ["dev@orchard.example"]},
        {"scopes": ["openid", "profile", "email", "address", "offline_access"]},
        {"trust": "verified"},
        {"access_token_format": "jwt"},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_invisible_or_harmless_changes_do_not_ask_again(asking: Flow, fields: dict[str, Any]) -> None:
    asking.decide(asking.consent())
    change(asking, fields)
    assert "code" in query_of(asking.authorize())


def test_removing_the_reviewed_mark_asks_again(asking: Flow) -> None:
    change(asking, {"trust": "verified"})
    page = asking.consent()
    assert f"Reviewed by {asking.organization.name}" in page.text
    asking.decide(page)
    change(asking, {"trust": "unverified"})
    page = asking.http.get(location(asking.authorize()))
    assert "No longer reviewed by" in page.text and "Not reviewed by" in page.text


def test_consent_for_the_old_app_is_replaced_by_the_new_one(asking: Flow) -> None:
    """CO-2: the new request has fewer scopes, and only those are remembered."""
    asking.decide(asking.consent(scope="openid profile email"))
    change(asking, {"name": "Your Bank"})
    asking.decide(asking.consent(scope="openid"))
    session = find_session_of(asking)
    with asking.app.app_context():
        [app] = list_consents(session)
        assert app.scopes == ("openid",)
    assert is_consent(asking.authorize(scope="openid email"), asking)


def find_session_of(flow: Flow):
    """Return the flow's user as an actor."""
    with flow.app.app_context():
        session = find_session(flow.make.sign_in(flow.user).token)
        assert session is not None
        return session.actor()
