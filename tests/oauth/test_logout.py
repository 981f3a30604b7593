"""RP-initiated logout: only registered redirects are followed, and any other is asked about."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pytest

from app.operations.clients import clients
from app.operations.clients.clients import RegisteredClient
from app.rules.actor import Actor
from tests.factories import Factory, MadeClient
from tests.oauth.conftest import FAST_KEYS, SCOPES, Flow, audited, location
from tests.oauth.failure_log import kept
from tests.support.databases import Database
from tests.support.form_browser import Page
from tests.support.registration import register

OPEN = FAST_KEYS["oauth"] | {"dynamic_registration": {"mode": "open"}}
BACK = "https://orchard.example/out?kept=1"


@pytest.fixture
def leaving(flow: Flow, make: Factory) -> Flow:
    """A flow whose client has a post-logout redirect URI; the user is signed in."""
    return flow.other_client(
        trust="first_party",
        redirect_uris=flow.client.registered.client.redirect_uris,
        post_logout_redirect_uris=[BACK, "https://orchard.example/other"],
    )


@pytest.fixture
def stranger(flow: Flow, make: Factory) -> Flow:
    """The same of a client that registered itself and that nobody reviewed."""
    organization = make.organization(settings={"oauth": OPEN})
    redirect_uris = flow.client.registered.client.redirect_uris
    with flow.app.app_context():
        sent = {"redirect_uris": list(redirect_uris), "post_logout_redirect_uris": [BACK]}
        registered = register(Actor.anonymous(organization.id), sent, None)
    made = MadeClient(organization, RegisteredClient(registered.client, None, registered.secret, []))
    found = Flow(flow.app, flow.http, make, made, make.user(organization))
    found.sign_in()
    return found


def logout(flow: Flow, *, method: str = "get", path: str = "/oauth/logout", **sent: str | None) -> Any:
    values = {name: value for name, value in sent.items() if value is not None}
    if method == "get":
        return flow.http.get(path, query_string=values)
    return flow.http.post(path, data=values)


def is_signed_in(flow: Flow) -> bool:
    """Return whether the browser is still signed in."""
    return "You are signed in as" in flow.http.get(f"/organizations/{flow.organization.slug}/logout").text


def is_question(answer: Any) -> bool:
    return answer.status_code == 200 and 'id="logout-confirm"' in answer.text


def say_yes(flow: Flow, page: Any, **changes: str) -> Any:
    form = Page("", page.status_code, page.text).form_with("logout-confirm")
    return flow.http.post(form.action, data=dict(form.values) | changes)


def signed_out_page(flow: Flow) -> str:
    return f"/organizations/{flow.organization.slug}/logout"


def test_signed_out_browser_is_not_sent_to_a_client_that_nobody_reviewed(stranger: Flow) -> None:
    """OR-2: anyone could register it, and would have a link on this host that leads anywhere at once."""
    hint = stranger.tokens(scope="openid")["id_token"]
    asked = {"id_token_hint": hint, "post_logout_redirect_uri": BACK}
    assert location(logout(stranger, **asked)) == BACK
    assert location(logout(stranger, **asked)) == signed_out_page(stranger)
    with stranger.app.app_context():
        admin = stranger.make.actor(stranger.organization)
        clients.update_client(admin, stranger.client.client_id, {"approval": "allowed"})
    assert location(logout(stranger, **asked)) == BACK


@pytest.mark.parametrize("path", ["/oauth/logout", "{issuer}/oauth/logout"])
@pytest.mark.parametrize("method", ["get", "post"])
def test_valid_hint_ends_the_session_and_redirects(
    leaving: Flow, database: Database, method: str, path: str
) -> None:
    """CF-4, OR-4, SS-8: with the unchanged state and nothing else."""
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


def test_missing_state_is_not_added(leaving: Flow) -> None:
    hint = leaving.tokens()["id_token"]
    answer = logout(leaving, id_token_hint=hint, post_logout_redirect_uri=BACK)
    assert location(answer) == BACK


def test_other_parameters_are_ignored(leaving: Flow) -> None:
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
        "https://orchard.example/out",
        "https://orchard.example/out?kept=1&",
        "https://orchard.example/OUT?kept=1",
        "https://orchard.example/callback",
        "https://evil.example/",
        "javascript:alert(1)",
        "//evil.example",
    ],
)
def test_unregistered_redirect_asks_and_is_not_followed(leaving: Flow, wanted: str) -> None:
    """OR-4: a page before the session ends, also with a valid hint."""
    hint = leaving.tokens()["id_token"]
    page = logout(leaving, id_token_hint=hint, post_logout_redirect_uri=wanted, state="s")
    assert is_question(page) and 'id="logout-stays"' in page.text
    assert is_signed_in(leaving)
    answer = say_yes(leaving, page)
    assert (answer.status_code, location(answer)) == (303, signed_out_page(leaving))
    assert 'id="logged-out"' in leaving.http.get(location(answer)).text


def test_unregistered_redirect_is_in_the_log_of_failed_requests(leaving: Flow) -> None:
    """The app's developer reads why users don't come back, whether or not a hint proves the app."""
    for hint in ({"id_token_hint": leaving.tokens()["id_token"]}, {"client_id": leaving.client.client_id}):
        wrong = "https://orchard.example/elsewhere"
        page = logout(leaving, post_logout_redirect_uri=wrong, **hint)
        assert is_question(page)
    entries = kept(leaving)
    assert [entry.cause for entry in entries] == ["post_logout_redirect_uri_not_registered"] * len(entries)
    assert entries and entries[0].received == "https://orchard.example/elsewhere"
    assert entries[0].expected == tuple(leaving.client.registered.client.post_logout_redirect_uris)
    assert entries[0].endpoint == "logout"


def test_logout_without_redirect_shows_the_page_of_the_organization(leaving: Flow) -> None:
    answer = logout(leaving, id_token_hint=leaving.tokens()["id_token"], state="s")
    assert (answer.status_code, location(answer)) == (303, signed_out_page(leaving))


def test_request_without_a_hint_asks_for_confirmation_and_does_not_redirect(
    leaving: Flow, database: Database
) -> None:
    """CF-4, OR-4: a GET from any site must not end a session."""
    for sent in (
        {"client_id": leaving.client.client_id, "post_logout_redirect_uri": BACK},
        {"client_id": leaving.client.client_id, "id_token_hint": "no.token.atall"},
    ):
        page = logout(leaving, **sent)
        assert is_question(page) and is_signed_in(leaving)
    answer = say_yes(leaving, logout(leaving, client_id=leaving.client.client_id))
    assert (answer.status_code, location(answer)) == (303, signed_out_page(leaving))
    assert database.count("sessions") == 0 and not is_signed_in(leaving)


def test_request_without_parameters_asks_for_confirmation(leaving: Flow) -> None:
    page = logout(leaving, path=f"/organizations/{leaving.organization.slug}/oauth/logout")
    assert is_question(page)


def test_logout_confirmation_form_is_validated_again(leaving: Flow, make: Factory) -> None:
    """IN-1: the form is trusted no more than the request."""
    page = logout(leaving, client_id=leaving.client.client_id)
    answer = say_yes(leaving, page, post_logout_redirect_uri="https://evil.example/", state="s")
    assert location(answer) == signed_out_page(leaving)
    leaving.sign_in()
    page = logout(leaving, client_id=leaving.client.client_id)
    assert say_yes(leaving, page, csrf_token="x").status_code in {400, 403}
    assert is_signed_in(leaving)


def test_logout_hint_of_another_user_needs_confirmation(leaving: Flow, make: Factory) -> None:
    """CF-4: the hint is valid, but for another session."""
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


def test_cross_site_post_returns_as_a_get_with_cookies(leaving: Flow) -> None:
    """Browsers omit SameSite=Lax cookies from a cross-site POST, but the session must end all the same."""
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


def test_logout_ends_only_the_session_of_its_organization(leaving: Flow, make: Factory) -> None:
    elsewhere = make.user(make.organization())
    make.sign_in(elsewhere, leaving.http)
    logout(leaving, id_token_hint=leaving.tokens()["id_token"])
    page = leaving.http.get(f"/organizations/{elsewhere.organization.slug}/logout").text
    assert elsewhere.email in page


def test_logout_revokes_session_tokens_but_not_offline_access(leaving: Flow) -> None:
    """Without offline_access, refresh tokens end with the session."""
    online = leaving.tokens(scope="openid")
    offline = leaving.tokens(scope=" ".join(SCOPES))
    assert "refresh_token" not in online
    logout(leaving, id_token_hint=online["id_token"])
    assert not leaving.is_alive(online["access_token"])
    assert leaving.refresh(offline["refresh_token"]).status_code == 200


def test_discovery_lists_the_endpoint(leaving: Flow) -> None:
    document = leaving.http.get(
        f"/organizations/{leaving.organization.slug}/.well-known/openid-configuration"
    )
    assert document.get_json()["end_session_endpoint"] == f"{leaving.issuer}/oauth/logout"
