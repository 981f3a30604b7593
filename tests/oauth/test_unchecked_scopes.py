"""Scopes unchecked on a later consent page are removed from existing tokens too (CO-3)."""

from __future__ import annotations

import pytest

from app.operations.authorization.connected_apps import list_consents
from app.operations.clients.clients import update_client
from tests.oauth.conftest import REDIRECT_URI, Flow, audited, query_of
from tests.oauth.device import Device
from tests.support.databases import Database

EVERYTHING = "openid profile email offline_access"


@pytest.fixture
def generous(asking: Flow) -> Flow:
    """A client with two optional scopes."""
    return asking.other_client(optional_scopes=["email", "offline_access"], redirect_uris=[REDIRECT_URI])


def decide(flow: Flow, ticked: list[str], scope: str = EVERYTHING) -> str:
    """Check the scopes on a new consent page and return the code."""
    return query_of(flow.decide(flow.consent(scope=scope, prompt="consent"), scope=ticked))["code"]


def test_tokens_with_an_unchecked_scope_are_revoked_and_others_stay(
    generous: Flow, database: Database
) -> None:
    held = generous.redeem(decide(generous, ["email", "offline_access"])).get_json()
    without = generous.redeem(decide(generous, ["offline_access"], "openid offline_access")).get_json()
    on_its_way = decide(generous, ["email", "offline_access"])
    assert generous.is_alive(held["access_token"])
    code = decide(generous, ["offline_access"])
    assert not generous.is_alive(held["access_token"])
    assert generous.refresh(held["refresh_token"]).get_json()["error"] == "invalid_grant"
    assert generous.redeem(on_its_way).get_json()["error"] == "invalid_grant"
    assert generous.refresh(without["refresh_token"]).status_code == 200
    assert "email" not in generous.redeem(code).get_json()["scope"]
    assert database.count("revocation_log") == 1 and audited(database, "consent.given") == 4
    with generous.app.app_context():
        [app] = list_consents(generous.make.actor(generous.organization, user=generous.user))
        assert "email" not in app.scopes


def test_tokens_of_a_consent_for_the_old_app_are_revoked_too(generous: Flow) -> None:
    """The app's name changed, which replaced the earlier consent but not its tokens."""
    held = generous.redeem(decide(generous, ["email", "offline_access"])).get_json()
    with generous.app.app_context():
        fields = {"name": "Another Orchard"}
        update_client(generous.make.system(generous.organization), generous.client.client_id, fields)
    decide(generous, ["offline_access"])
    assert not generous.is_alive(held["access_token"])


def test_tokens_with_claims_of_an_unchecked_scope_are_revoked_too(generous: Flow) -> None:
    """A request for the address claim returns it without the scope's name in the token."""
    page = generous.consent(scope="openid", claims='{"userinfo": {"email": null}}')
    held = generous.redeem(query_of(generous.decide(page, scope=["email"]))["code"]).get_json()
    assert held["scope"] == "openid" and generous.is_alive(held["access_token"])
    decide(generous, ["offline_access"])
    assert not generous.is_alive(held["access_token"])


def test_device_tokens_with_an_unchecked_scope_are_revoked_too(asking: Flow) -> None:
    device = Device(
        asking.http,
        asking.make,
        asking.user,
        scopes=EVERYTHING.split(),
        optional_scopes=["email"],
    )
    answers = []
    for ticked in ("email", ""):
        code = device.code(scope="openid email")
        page = device.press(device.enter(code["user_code"]), "device-continue")
        device.press(page, "consent-allow", scope=ticked)
        answers.append(code["device_code"])
    assert device.poll(answers[0]).status_code == 400
    assert device.poll(answers[1]).get_json()["scope"] == "openid"
