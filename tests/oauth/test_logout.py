"""RP-initiated logout: the end of the sign-in never depends on the redirect, and a redirect is never a stranger's."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.factories import Factory
from tests.oauth.conftest import SCOPES, Flow, audited, location
from tests.support.databases import Database
from tests.support.person import Page

BACK = "https://orchard.example/out?kept=1"


@pytest.fixture
def leaving(flow: Flow, make: Factory) -> Flow:
    """A flow whose client may take people back after logout; the user is signed in."""
    return flow.other_client(
        trust="first_party",
        redirect_uris=flow.client.registered.client.redirect_uris,
        post_logout_redirect_uris=[BACK, "https://orchard.example/other"],
    )


def logout(flow: Flow, *, method: str = "get", path: str = "/oauth/logout", **sent: str | None) -> Any:
    values = {name: value for name, value in sent.items() if value is not None}
    if method == "get":
        return flow.http.get(path, query_string=values)
    return flow.http.post(path, data=values)


def is_signed_in(flow: Flow) -> bool:
    """Whether the browser still is; asked of the page that says who."""
    return "You are signed in as" in flow.http.get(f"/organizations/{flow.organization.slug}/logout").text


def is_question(answer: Any) -> bool:
    return answer.status_code == 200 and 'id="logout-confirm"' in answer.text


def say_yes(flow: Flow, page: Any, **changes: str) -> Any:
    form = Page("", page.status_code, page.text).form_with("logout-confirm")
    return flow.http.post(form.action, data=dict(form.values) | changes)


def signed_out_page(flow: Flow) -> str:
    return f"/organizations/{flow.organization.slug}/logout"


@pytest.mark.parametrize("path", ["/oauth/logout", "{issuer}/oauth/logout"])
@pytest.mark.parametrize("method", ["get", "post"])
def test_a_good_hint_ends_the_sign_in_at_once_and_brings_the_browser_back(
    leaving: Flow, database: Database, method: str, path: str
) -> None:
    """CF-4, OR-4, SS-8: with state byte for byte and nothing else. protocol: logout, redirect."""
    hint = leaving.tokens()["id_token"]
    path = path.format(issuer=urlsplit(leaving.issuer).path)
    answer = logout(
        leaving, method=method, path=path, id_token_hint=hint, post_logout_redirect_uri=BACK, state="a b&ü=1"
    )
    assert (answer.status_code, location(answer)) == (303, f"{BACK}&state=a%20b%26%C3%BC%3D1")
    assert not is_signed_in(leaving)
    assert database.count("sessions") == 0
    assert audited(database, "session.ended") == 1
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert answer.headers["Cache-Control"] == "no-store"
    assert "Access-Control-Allow-Origin" not in answer.headers


def test_without_state_none_is_added(leaving: Flow) -> None:
    """protocol: logout, redirect."""
    hint = leaving.tokens()["id_token"]
    answer = logout(leaving, id_token_hint=hint, post_logout_redirect_uri=BACK)
    assert location(answer) == BACK


def test_every_other_parameter_is_taken_and_stops_nothing(leaving: Flow) -> None:
    answer = logout(
        leaving,
        id_token_hint=leaving.tokens()["id_token"],
        client_id=leaving.client.client_id,
        post_logout_redirect_uri=BACK,
        logout_hint="ada@example.com",
        ui_locales="de fr",
        unknown="x",
    )
    assert location(answer) == BACK


@pytest.mark.parametrize(
    "wanted",
    [
        None,
        "https://orchard.example/out",
        "https://orchard.example/out?kept=1&",
        "https://orchard.example/OUT?kept=1",
        "https://orchard.example/callback",
        "https://evil.example/",
        "javascript:alert(1)",
        "//evil.example",
    ],
)
def test_an_address_that_is_not_registered_is_not_followed_and_the_sign_in_ends(
    leaving: Flow, wanted: str | None
) -> None:
    """OR-4. protocol: logout, the sign-in ends whatever the redirect."""
    answer = logout(
        leaving, id_token_hint=leaving.tokens()["id_token"], post_logout_redirect_uri=wanted, state="s"
    )
    assert (answer.status_code, location(answer)) == (303, signed_out_page(leaving))
    assert 'id="logged-out"' in leaving.http.get(location(answer)).text


def test_without_a_hint_there_is_a_question_and_no_redirect(leaving: Flow, database: Database) -> None:
    """CF-4, OR-4: a GET that anybody can cause ends nothing. protocol: logout, confirmation."""
    for sent in (
        {"client_id": leaving.client.client_id, "post_logout_redirect_uri": BACK},
        {"client_id": leaving.client.client_id, "id_token_hint": "no.token.atall"},
    ):
        page = logout(leaving, **sent)
        assert is_question(page) and is_signed_in(leaving)
    answer = say_yes(leaving, logout(leaving, client_id=leaving.client.client_id))
    assert (answer.status_code, location(answer)) == (303, signed_out_page(leaving))
    assert database.count("sessions") == 0 and not is_signed_in(leaving)


def test_the_question_of_an_issuer_needs_no_parameter_at_all(leaving: Flow) -> None:
    page = logout(leaving, path=f"/organizations/{leaving.organization.slug}/oauth/logout")
    assert is_question(page)


def test_logout_confirmation_form_is_validated_again(leaving: Flow, make: Factory) -> None:
    """IN-1: what comes with the form proves no more than what came with the request."""
    page = logout(leaving, client_id=leaving.client.client_id)
    answer = say_yes(leaving, page, post_logout_redirect_uri="https://evil.example/", state="s")
    assert location(answer) == signed_out_page(leaving)
    leaving.sign_in()
    page = logout(leaving, client_id=leaving.client.client_id)
    assert say_yes(leaving, page, csrf_token="x").status_code in {400, 403}
    assert is_signed_in(leaving)


def test_logout_hint_of_another_user_needs_confirmation(leaving: Flow, make: Factory) -> None:
    """CF-4: the hint is good, but not for the sign-in of this browser."""
    hint = leaving.tokens()["id_token"]
    make.sign_in(make.user(leaving.organization), leaving.http)
    page = logout(leaving, id_token_hint=hint, post_logout_redirect_uri=BACK, state="s")
    assert is_question(page) and is_signed_in(leaving)
    assert location(say_yes(leaving, page)) == f"{BACK}&state=s"
    assert not is_signed_in(leaving)


def test_logout_without_a_session_redirects_at_once(leaving: Flow) -> None:
    hint = leaving.tokens()["id_token"]
    logout(leaving, id_token_hint=hint)
    assert location(logout(leaving, id_token_hint=hint, post_logout_redirect_uri=BACK)) == BACK
    nothing = logout(leaving, client_id=leaving.client.client_id, post_logout_redirect_uri=BACK)
    assert location(nothing) == signed_out_page(leaving)


def test_a_form_of_another_site_comes_back_as_a_get_that_carries_the_cookies(leaving: Flow) -> None:
    """A browser leaves SameSite=Lax cookies out of another site's POST; the sign-in must end all the same."""
    hint = leaving.tokens()["id_token"]
    stranger = leaving.app.test_client()
    answer = stranger.post(
        "/oauth/logout",
        data={"id_token_hint": hint, "post_logout_redirect_uri": BACK, "state": "s"},
        headers={"Origin": "https://orchard.example", "Sec-Fetch-Site": "cross-site"},
    )
    assert answer.status_code == 303
    assert location(leaving.http.get(location(answer))) == f"{BACK}&state=s"
    assert not is_signed_in(leaving)


def test_only_this_organizations_sign_in_ends(leaving: Flow, make: Factory) -> None:
    elsewhere = make.user(make.organization())
    make.sign_in(elsewhere, leaving.http)
    logout(leaving, id_token_hint=leaving.tokens()["id_token"])
    page = leaving.http.get(f"/organizations/{elsewhere.organization.slug}/logout").text
    assert elsewhere.email in page


def test_logout_revokes_session_tokens_but_not_offline_access(leaving: Flow) -> None:
    """Refresh tokens need offline_access; what the sign-in gave without it ends with it."""
    online = leaving.tokens(scope="openid")
    offline = leaving.tokens(scope=" ".join(SCOPES))
    assert "refresh_token" not in online
    logout(leaving, id_token_hint=online["id_token"])
    assert not leaving.is_alive(online["access_token"])
    assert leaving.refresh(offline["refresh_token"]).status_code == 200


def test_discovery_names_it(leaving: Flow) -> None:
    document = leaving.http.get(
        f"/organizations/{leaving.organization.slug}/.well-known/openid-configuration"
    )
    assert document.get_json()["end_session_endpoint"] == f"{leaving.issuer}/oauth/logout"
