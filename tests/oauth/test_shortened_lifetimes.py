"""Shortened lifetimes apply immediately to existing tokens, and never extend them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from flask.testing import FlaskClient
from sqlalchemy import event

from app.extensions import db
from app.models.client import Scope
from app.models.grant import AuthorizationCode, Consent, Grant
from app.models.user import User
from app.operations.authorization.connected_apps import (
    list_consents,
    list_user_consents,
    withdraw_user_consent,
)
from app.operations.grants.grant_lists import list_grants
from app.operations.organizations.settings import update_settings
from app.operations.store import clock
from app.operations.tokens.inspection import inspect_token
from tests.factories import Factory
from tests.oauth.conftest import (
    FAST_KEYS,
    Flow,
    change_rows,
    clock_ago,
    is_consent,
    on_another_worker,
    query_of,
)
from tests.oauth.device import Device
from tests.oauth.test_refresh import configure, is_refused, move

HOUR = timedelta(hours=1)
DAY = 24 * HOUR


def shorten(flow: Flow, **refresh_token: int) -> None:
    """Shorten a lifetime in another worker."""
    with flow.app.app_context(), on_another_worker():
        configure(flow, **refresh_token)


def set_oauth(flow: Flow, changes: dict[str, Any]) -> None:
    with flow.app.app_context(), on_another_worker():
        update_settings(flow.make.system(flow.organization), flow.organization.slug, {"oauth": changes})


def listed(flow: Flow) -> list[Any]:
    with flow.app.app_context():
        return list(list_grants(flow.make.actor(flow.organization, "tokens:read")).items)


@pytest.mark.parametrize("rotation", ["always", "public_clients"])
def test_family_idle_for_longer_than_the_new_limit_expires(flow: Flow, rotation: str) -> None:
    """RF-5: with and without rotation; the rejected use does not revive it."""
    configure(flow, rotation=rotation, idle_ttl_seconds=10 * 86_400)
    token = flow.tokens()["refresh_token"]
    move(flow.app, created_at=-5 * DAY, refreshed_at=-2 * HOUR)
    assert flow.introspect(token)["active"] and len(listed(flow)) == 1
    shorten(flow, idle_ttl_seconds=3600)
    assert not flow.introspect(token)["active"] and listed(flow) == []
    for _ in range(2):
        assert is_refused(flow.refresh(token))


@pytest.mark.parametrize("rotation", ["always", "public_clients"])
def test_regularly_used_family_stays_valid(flow: Flow, rotation: str) -> None:
    """The idle limit counts from the latest use."""
    configure(flow, rotation=rotation, idle_ttl_seconds=10 * 86_400)
    token = flow.tokens()["refresh_token"]
    move(flow.app, created_at=-5 * DAY, refreshed_at=-5 * DAY)
    token = flow.refresh(token).get_json().get("refresh_token", token)
    shorten(flow, idle_ttl_seconds=3600)
    with flow.app.app_context():
        shown = inspect_token(flow.make.actor(flow.organization, "tokens:read"), token).expires_at
    assert shown is not None and int(shown.timestamp()) == flow.introspect(token)["exp"]
    assert flow.refresh(token).status_code == 200
    assert flow.introspect(token)["active"] is (rotation == "public_clients")


def test_family_without_a_last_use_keeps_its_stored_expiry(flow: Flow) -> None:
    """Rows of the previous release do not record the latest use."""
    token = flow.tokens()["refresh_token"]
    change_rows(flow, Grant, refreshed_at=None)
    move(flow.app, created_at=-2 * DAY)
    shorten(flow, idle_ttl_seconds=3600)
    assert flow.refresh(token).status_code == 200


def test_family_older_than_the_new_limit_expires(flow: Flow) -> None:
    """RF-5."""
    token = flow.tokens()["refresh_token"]
    move(flow.app, created_at=-3 * DAY)
    assert flow.introspect(token)["active"]
    shorten(flow, ttl_seconds=2 * 86_400, idle_ttl_seconds=86_400)
    assert not flow.introspect(token)["active"] and listed(flow) == []
    assert is_refused(flow.refresh(token))


def test_longer_limit_does_not_extend_existing_tokens(flow: Flow) -> None:
    configure(flow, ttl_seconds=7200, idle_ttl_seconds=3600)
    token = flow.tokens()["refresh_token"]
    before = flow.introspect(token)["exp"]
    configure(flow, ttl_seconds=72_000, idle_ttl_seconds=36_000)
    assert flow.introspect(token)["exp"] == before


def test_refresh_runs_no_additional_queries(flow: Flow) -> None:
    """One read, one compare-and-set, one token."""
    token = flow.tokens()["refresh_token"]
    token = flow.refresh(token).get_json()["refresh_token"]
    said: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        said.append(statement.split()[0])

    with flow.app.app_context():
        engine = db.engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        assert flow.refresh(token).status_code == 200
    finally:
        event.remove(engine, "before_cursor_execute", note)
    assert said.count("UPDATE") <= 1 and said.count("INSERT") <= 1


def test_code_older_than_the_new_limit_expires(flow: Flow) -> None:
    """CD-2."""
    code, other = flow.code(), flow.code()
    change_rows(flow, User, password_changed_at=None)
    change_rows(flow, AuthorizationCode, issued_at=clock_ago(flow, 30))
    assert flow.redeem(other).status_code == 200
    set_oauth(flow, {"authorization_code_ttl_seconds": 20})
    assert is_refused(flow.redeem(code))


def test_device_code_older_than_the_new_limit_expires(http: FlaskClient, make: Factory) -> None:
    user = make.user(make.organization(settings=FAST_KEYS))
    device = Device(http, make, user, scopes=["openid", "profile"])
    code = device.code()["device_code"]
    with make.app.app_context():
        before = clock.now() - timedelta(minutes=5)
    device.change(created_at=before)
    assert device.poll(code).get_json()["error"] == "authorization_pending"
    with make.app.app_context(), on_another_worker():
        changes = {"oauth": {"device_code_ttl_seconds": 120}}
        update_settings(make.system(user.organization), user.organization.slug, changes)
    assert device.poll(code).get_json()["error"] == "expired_token"


def test_consent_older_than_the_new_limit_is_asked_again(asking: Flow) -> None:
    change_rows(asking, Scope, created_at=clock_ago(asking, 4 * 86_400))
    assert "code" in query_of(asking.decide(asking.consent()))
    change_rows(asking, Consent, updated_at=clock_ago(asking, 3 * 86_400))
    assert "code" in query_of(asking.authorize())
    set_oauth(asking, {"consent": {"ttl_seconds": 2 * 86_400}})
    assert is_consent(asking.authorize(), asking)
    assert "code" in query_of(asking.decide(asking.consent()))
    assert "code" in query_of(asking.authorize())


def consents_of(flow: Flow) -> tuple[list[Any], list[Any]]:
    """Return what the user sees among connected apps and what an administrator sees among consents."""
    with flow.app.app_context():
        apps = list_consents(flow.make.actor(flow.organization, user=flow.user))
        return apps, list(list_user_consents(flow.make.actor(flow.organization, "consents:read")).items)


def test_grants_expire_with_the_shortened_consent(asking: Flow) -> None:
    """CO-3: refresh, introspection and lists agree, and a new consent does not revive old tokens."""
    token = asking.tokens()["refresh_token"]
    change_rows(asking, Consent, updated_at=clock_ago(asking, 3 * 86_400))
    move(asking.app, allowed_at=-3 * DAY, created_at=-3 * DAY)
    set_oauth(asking, {"consent": {"ttl_seconds": 4 * 86_400}})
    [grant] = listed(asking)
    assert timedelta(hours=23) < grant.expires_at - clock_ago(asking, 0) < DAY
    assert asking.introspect(token)["exp"] == int(grant.expires_at.timestamp())
    set_oauth(asking, {"consent": {"ttl_seconds": 2 * 86_400}})
    assert not asking.introspect(token)["active"]
    assert listed(asking) == [] and consents_of(asking) == ([], [])
    assert is_refused(asking.refresh(token))
    assert "code" in query_of(asking.decide(asking.consent()))
    assert is_refused(asking.refresh(token))


def test_access_token_does_not_outlive_the_shortened_lifetime(asking: Flow) -> None:
    change_rows(asking, Scope, created_at=clock_ago(asking, 86_400))
    token = asking.tokens()["refresh_token"]
    set_oauth(asking, {"consent": {"ttl_seconds": 86_400}})
    move(asking.app, allowed_at=-DAY + timedelta(seconds=60))
    assert asking.refresh(token).get_json()["expires_in"] <= 60


def test_grant_without_consent_does_not_expire_with_consents(flow: Flow) -> None:
    """A first-party client, even if there is a consent from when it was still asked for."""
    set_oauth(flow, {"consent": {"policy": "always"}})
    token = flow.tokens()["refresh_token"]
    set_oauth(flow, {"consent": {"policy": "third_party"}})
    move(flow.app, allowed_at=-3 * DAY)
    set_oauth(flow, {"consent": {"ttl_seconds": 2 * 86_400}})
    assert flow.introspect(token)["active"] and len(listed(flow)) == len(consents_of(flow)[0]) == 1
    assert flow.refresh(token).status_code == 200


def test_expired_consent_can_be_removed_while_a_grant_is_active(asking: Flow) -> None:
    """A sign-in without a page started later than the consent."""
    token = asking.tokens()["refresh_token"]
    change_rows(asking, Consent, updated_at=clock_ago(asking, 3 * 86_400))
    set_oauth(asking, {"consent": {"ttl_seconds": 2 * 86_400}})
    [app], [consent] = consents_of(asking)
    assert app.client_id == consent.client_id == asking.client.client_id
    with asking.app.app_context():
        actor = asking.make.actor(asking.organization, "consents:write")
        assert withdraw_user_consent(actor, consent.public_id) == 1
    assert is_refused(asking.refresh(token)) and consents_of(asking) == ([], [])
