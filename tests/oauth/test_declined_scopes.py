"""What a person left out of a consent is remembered: nobody is asked the same at each sign-in."""

from __future__ import annotations

from typing import Any

import pytest

from app.operations.authorization.connected_apps import list_consents, withdraw_consent
from app.operations.clients.clients import update_client
from app.operations.organizations.settings import update_settings
from tests.oauth.conftest import REDIRECT_URI, Flow, is_consent, query_of
from tests.oauth.device import Device
from tests.support.databases import Database
from tests.support.person import Page

EVERYTHING = "openid profile email offline_access"


@pytest.fixture
def picky(asking: Flow) -> Flow:
    """A client with two optional scopes, of which the person left out one."""
    flow = asking.other_client(optional_scopes=["email", "offline_access"], redirect_uris=[REDIRECT_URI])
    assert given(flow, flow.decide(flow.consent(scope=EVERYTHING), scope=["offline_access"])) == {
        "openid", "profile", "offline_access",
    }  # fmt: skip
    return flow


def given(flow: Flow, answer: Any) -> set[str]:
    """The scopes of the tokens that the answer's code gives."""
    return set(flow.redeem(query_of(answer)["code"]).get_json()["scope"].split())


def change(flow: Flow, **fields: Any) -> None:
    with flow.app.app_context():
        update_client(flow.make.system(flow.organization), flow.client.client_id, fields)


def test_who_left_something_out_is_not_asked_again_and_it_stays_out(picky: Flow) -> None:
    for _ in range(2):
        assert given(picky, picky.authorize(scope=EVERYTHING)) == {"openid", "profile", "offline_access"}
    assert given(picky, picky.authorize(scope=EVERYTHING, prompt="none")) == {
        "openid", "profile", "offline_access",
    }  # fmt: skip
    assert given(picky, picky.authorize(scope="openid email")) == {"openid"}


def test_an_app_that_asks_anew_is_answered_anew(picky: Flow) -> None:
    """The page has what was left out unticked; what is ticked then counts from then on."""
    page = picky.consent(scope=EVERYTHING, prompt="consent")
    ticked = dict(Page("", page.status_code, page.text).form_with("consent-allow").values)
    assert ticked.get("scope") == "offline_access"
    assert "email" in given(picky, picky.decide(page, scope=["email", "offline_access"]))
    assert "email" in given(picky, picky.authorize(scope=EVERYTHING))


def test_what_is_unticked_later_is_out_from_then_on(picky: Flow) -> None:
    page = picky.consent(scope=EVERYTHING, prompt="consent")
    assert given(picky, picky.decide(page, scope=["email"])) == {"openid", "profile", "email"}
    assert given(picky, picky.authorize(scope=EVERYTHING)) == {"openid", "profile", "email"}


def test_an_app_that_asks_for_nothing_else_asks_again(picky: Flow) -> None:
    """Without the page the person could never change their mind there."""
    assert is_consent(picky.authorize(scope="email"), picky)


def test_a_wish_that_was_never_heard_is_asked_and_the_answer_before_stands(asking: Flow) -> None:
    """Only what was asked for can be left out."""
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
def test_once_the_app_is_another_it_is_asked_again(picky: Flow, fields: dict[str, Any]) -> None:
    change(picky, **fields)
    assert is_consent(picky.authorize(scope=EVERYTHING), picky)


def test_a_decision_for_everybody_counts_whatever_one_person_left_out(picky: Flow) -> None:
    change(picky, trust="first_party")
    assert given(picky, picky.authorize(scope=EVERYTHING)) == set(EVERYTHING.split())
    with picky.app.app_context():
        changes = {"oauth": {"consent": {"policy": "always"}}}
        update_settings(picky.make.system(picky.organization), picky.organization.slug, changes)
    assert "email" not in given(picky, picky.authorize(scope=EVERYTHING))


def test_a_withdrawn_consent_forgets_it_too(picky: Flow, database: Database) -> None:
    with picky.app.app_context():
        actor = picky.make.actor(picky.organization, user=picky.user)
        [record] = list_consents(actor)
        withdraw_consent(actor, record.id)
    assert database.count("consents") == 0
    assert is_consent(picky.authorize(scope=EVERYTHING), picky)


def test_a_device_is_treated_alike(asking: Flow) -> None:
    """What was left out for a device stays out at the next one, without a page."""
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
