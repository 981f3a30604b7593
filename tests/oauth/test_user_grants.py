"""A user's own grants: listed, removed and limited in number (CO-3)."""

from __future__ import annotations

import pytest

from app.models.grant import Consent, Grant
from app.operations.authorization.connected_apps import list_consents, withdraw_consent
from app.operations.grants import grants
from app.operations.sign_in.sessions import find_session
from app.rules.actor import Actor
from app.rules.errors import NotFound
from tests.oauth.conftest import Flow, audited, change_rows, clock_ago
from tests.support.databases import Database


def actor(flow: Flow) -> Actor:
    """The flow's user."""
    session = find_session(flow.make.sign_in(flow.user).token)
    assert session is not None
    return session.actor()


def test_first_party_grants_are_one_app_and_are_removed_together(flow: Flow, database: Database) -> None:
    first, second = flow.tokens(scope="openid offline_access"), flow.tokens(scope="openid email")
    pending = flow.code()
    with flow.app.app_context():
        user = actor(flow)
        [app] = list_consents(user)
        assert (app.client_id, app.trust) == (flow.client.client_id, "first_party")
        assert set(app.scopes) == {"openid", "offline_access", "email"}
        assert withdraw_consent(user, app.id) == 2
        assert list_consents(user) == []
        with pytest.raises(NotFound):
            withdraw_consent(user, app.id)
    assert not flow.is_alive(first["access_token"]) and not flow.is_alive(second["access_token"])
    assert flow.refresh(first["refresh_token"]).status_code == 400
    assert flow.redeem(pending).status_code == 400
    assert audited(database, "consent.withdrawn") == 1


def test_consented_client_is_listed_once(asking: Flow) -> None:
    asking.tokens()
    asking.tokens()
    with asking.app.app_context():
        [app] = list_consents(actor(asking))
        assert app.id != asking.client.registered.client.id


def test_last_use_of_an_app_is_its_latest_token_request(asking: Flow) -> None:
    """Also by a sign-in without a page, and by a refresh."""
    tokens = asking.tokens()
    long_ago = clock_ago(asking, 86_400)
    change_rows(asking, Consent, last_used_at=long_ago)
    change_rows(asking, Grant, created_at=long_ago)
    with asking.app.app_context():
        [app] = list_consents(actor(asking))
        assert app.last_used_at == long_ago
    asking.refresh(tokens["refresh_token"])
    with asking.app.app_context():
        [app] = list_consents(actor(asking))
    assert app.last_used_at > clock_ago(asking, 60)


def test_grants_of_another_user_cannot_be_removed(flow: Flow) -> None:
    tokens = flow.tokens()
    other = Flow(flow.app, flow.app.test_client(), flow.make, flow.client, flow.make.user(flow.organization))
    with flow.app.app_context():
        assert list_consents(actor(other)) == []
        with pytest.raises(NotFound):
            withdraw_consent(actor(other), flow.client.registered.client.id)
    assert flow.is_alive(tokens["access_token"])


def test_account_page_lists_and_removes_the_app(flow: Flow) -> None:
    tokens = flow.tokens()
    apps = f"/organizations/{flow.organization.slug}/account/apps"
    page = flow.http.get(apps)
    assert flow.client.registered.client.name in page.text
    with flow.app.app_context():
        [app] = list_consents(actor(flow))
    assert f"{apps}/{app.public_id}/remove" in page.text
    assert flow.http.get(f"{apps}/{app.public_id}/remove").status_code == 200
    assert flow.is_alive(tokens["access_token"])


def test_oldest_grant_is_removed_above_the_limit(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grants, "MAX_ACTIVE_GRANTS", 3)
    given = [flow.tokens() for _ in range(4)]
    assert [flow.is_alive(tokens["access_token"]) for tokens in given] == [False, True, True, True]
    elsewhere = flow.other_client(trust="first_party", redirect_uris=[flow.parameters()["redirect_uri"]])
    assert elsewhere.is_alive(elsewhere.tokens()["access_token"])
    assert flow.is_alive(given[1]["access_token"])
