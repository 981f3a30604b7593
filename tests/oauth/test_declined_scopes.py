"""Declined scopes are remembered, so that users are not asked the same at every sign-in."""

from __future__ import annotations

from typing import Any

import pytest

from app.operations.authorization.connected_apps import list_consents, withdraw_consent
from app.operations.clients import resources
from app.operations.clients.clients import update_client
from app.operations.organizations.settings import update_settings
from tests.oauth.conftest import REDIRECT_URI, Flow, is_consent, query_of
from tests.oauth.device import Device
from tests.support.databases import Database
from tests.support.form_browser import Page

EVERYTHING = "openid profile email offline_access"


@pytest.fixture
def picky(asking: Flow) -> Flow:
    """A client with two optional scopes, one of which the user declined."""
    flow = asking.other_client(optional_scopes=["email", "offline_access"], redirect_uris=[REDIRECT_URI])
    assert given(flow, flow.decide(flow.consent(scope=EVERYTHING), scope=["offline_access"])) == {
        "openid", "profile", "offline_access",
    }  # fmt: skip
    return flow


def given(flow: Flow, answer: Any) -> set[str]:
    """Return the scopes of the tokens issued for the response's code."""
    return set(flow.redeem(query_of(answer)["code"]).get_json()["scope"].split())


def change(flow: Flow, **fields: Any) -> None:
    with flow.app.app_context():
        update_client(flow.make.system(flow.organization), flow.client.client_id, fields)


def test_declined_scope_is_not_asked_again_and_not_granted(picky: Flow) -> None:
    for _ in range(2):
        assert given(picky, picky.authorize(scope=EVERYTHING)) == {"openid", "profile", "offline_access"}
    assert given(picky, picky.authorize(scope=EVERYTHING, prompt="none")) == {
        "openid", "profile", "offline_access",
    }  # fmt: skip
    assert given(picky, picky.authorize(scope="openid email")) == {"openid"}


def test_prompt_consent_asks_again_and_applies_the_new_choice(picky: Flow) -> None:
    """The page shows declined scopes unchecked. What is checked then applies from then on."""
    page = picky.consent(scope=EVERYTHING, prompt="consent")
    ticked = dict(Page("", page.status_code, page.text).form_with("consent-allow").values)
    assert ticked.get("scope") == "offline_access"
    assert "email" in given(picky, picky.decide(page, scope=["email", "offline_access"]))
    assert "email" in given(picky, picky.authorize(scope=EVERYTHING))


def test_scope_unchecked_later_is_no_longer_granted(picky: Flow) -> None:
    page = picky.consent(scope=EVERYTHING, prompt="consent")
    assert given(picky, picky.decide(page, scope=["email"])) == {"openid", "profile", "email"}
    assert given(picky, picky.authorize(scope=EVERYTHING)) == {"openid", "profile", "email"}


def test_request_for_only_declined_scopes_asks_again(picky: Flow) -> None:
    """Otherwise the user could never change the decision there."""
    assert is_consent(picky.authorize(scope="email"), picky)


def test_new_optional_scope_is_asked_and_earlier_choice_is_kept(asking: Flow) -> None:
    """Only a scope that was asked for can be declined."""
    flow = asking.other_client(optional_scopes=["email", "offline_access"], redirect_uris=[REDIRECT_URI])
    flow.decide(flow.consent(scope="openid profile email"), scope=())
    assert is_consent(flow.authorize(scope=EVERYTHING), flow)
    assert given(flow, flow.decide(flow.consent(scope="openid offline_access"), scope=["offline_access"])) == {
        "openid", "offline_access",
    }  # fmt: skip
    assert given(flow, flow.authorize(scope=EVERYTHING)) == {"openid", "profile", "offline_access"}


@pytest.mark.parametrize(
    "fields",
    [
        {"optional_scopes": ["offline_access"]},
        {"scopes": ["openid", "profile", "email", "offline_access", "address"]},
        {"name": "Another Orchard"},
    ],
    ids=["it is required now", "the app has other scopes", "the app is called otherwise"],
)
def test_changed_app_asks_about_declined_scopes_again(picky: Flow, fields: dict[str, Any]) -> None:
    change(picky, **fields)
    assert is_consent(picky.authorize(scope=EVERYTHING), picky)


def test_organization_approval_overrides_a_declined_scope(picky: Flow) -> None:
    change(picky, trust="first_party")
    assert given(picky, picky.authorize(scope=EVERYTHING)) == set(EVERYTHING.split())
    with picky.app.app_context():
        changes = {"oauth": {"consent": {"policy": "always"}}}
        update_settings(picky.make.system(picky.organization), picky.organization.slug, changes)
    assert "email" not in given(picky, picky.authorize(scope=EVERYTHING))


def test_withdrawing_consent_forgets_declined_scopes(picky: Flow, database: Database) -> None:
    with picky.app.app_context():
        actor = picky.make.actor(picky.organization, user=picky.user)
        [record] = list_consents(actor)
        withdraw_consent(actor, record.id)
    assert database.count("consents") == 0
    assert is_consent(picky.authorize(scope=EVERYTHING), picky)


@pytest.mark.parametrize(
    ("is_device", "is_default"),
    [(False, False), (True, False), (False, True)],
    ids=["browser", "device", "default resource"],
)
def test_api_whose_scopes_were_declined_gets_no_token(
    asking: Flow, is_device: bool, is_default: bool
) -> None:
    """A token without scopes would tell it who the user is."""
    stock, scope = "https://stock.example", "openid stock:read"
    fields = {
        "identifier": stock,
        "name": "Stock",
        "access_policy": "open",
        "scopes": [{"name": "stock:read"}],
    }
    with asking.app.app_context():
        resources.define_resource(asking.make.actor(asking.organization), fields)
    optional = {"scopes": scope.split(), "optional_scopes": ["stock:read"]}
    if is_device:
        basic = {"token_endpoint_auth_method": "client_secret_basic"}
        device = Device(asking.http, asking.make, asking.user, **optional, **basic)
        client = device.client
        code = device.code(headers=client.basic, client_id=None, scope=scope, resource=stock)
        device.allow(code["user_code"])
        tokens = device.poll(code["device_code"], client.basic, client_id=None)
    else:
        optional["resources"] = [stock] if is_default else []
        flow = asking.other_client(**optional, redirect_uris=[REDIRECT_URI])
        client = flow.client
        answer = flow.decide(flow.consent(scope=scope, resource=stock), scope=[])
        tokens = flow.redeem(query_of(answer)["code"])
    given = {"token": tokens.get_json()["access_token"]}
    told = asking.http.post("/oauth/introspect", data=given, headers=client.basic).get_json()
    assert (told["scope"], told["aud"]) == ("openid", asking.organization.issuer)


def test_declined_scopes_apply_to_devices(asking: Flow) -> None:
    """A scope declined for one device is not granted to the next one, without a page."""
    device = Device(
        asking.http,
        asking.make,
        asking.user,
        scopes=EVERYTHING.split(),
        optional_scopes=["email"],
        token_endpoint_auth_method="client_secret_basic",
    )
    for is_asked in (True, False):
        code = device.code(headers=device.client.basic, client_id=None, scope="openid email")
        page = device.press(device.enter(code["user_code"]), "device-continue")
        assert ("consent-allow" in page.text) is is_asked
        page = device.press(page, "consent-allow") if is_asked else page
        assert 'id="device-allowed"' in page.text
        tokens = device.poll(code["device_code"], device.client.basic, client_id=None).get_json()
        assert tokens["scope"] == "openid"
