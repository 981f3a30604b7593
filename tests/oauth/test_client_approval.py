"""What administrators decide about clients: blocked, asked for, approved for everybody."""

from __future__ import annotations

from typing import Any

import pytest

from app.operations.authorization.approval_requests import list_client_requests
from app.operations.authorization.client_decisions import approve_client_request, decline_client_request
from app.operations.clients.clients import update_client
from app.operations.organizations.settings import update_settings
from tests.oauth.conftest import (
    REDIRECT_URI,
    Flow,
    audited,
    is_consent,
    location,
    on_another_worker,
    query_of,
)
from tests.oauth.device import Device
from tests.support.databases import Database
from tests.support.person import Page

EVERYTHING = "openid profile email offline_access"


def change(flow: Flow, **fields: Any) -> None:
    """An administrator changes the client."""
    with flow.app.app_context():
        update_client(flow.make.actor(flow.organization), flow.client.client_id, fields)


def let_members_allow(flow: Flow, which: str) -> None:
    """The organization's setting is this."""
    with flow.app.app_context():
        changes = {"oauth": {"consent": {"members_may_allow": which}}}
        update_settings(flow.make.system(flow.organization), flow.organization.slug, changes)


def asked(flow: Flow, **changes: str | None):
    """The page to which the person is sent."""
    page = flow.http.get(location(flow.authorize(**changes)))
    assert page.status_code == 200, page.text[:500]
    return page


def ask(flow: Flow, reason: str = "For the harvest report"):
    """The page after the member asked."""
    return flow.decide(asked(flow), "client-request-send", reason=reason)


# Blocked


def test_a_blocked_client_is_refused_everywhere_at_once(asking: Flow, database: Database) -> None:
    """CO-3's other side: tokens, families, codes and new requests; also on a worker that has an older view."""
    tokens, code, page = asking.tokens(), asking.code(scope="openid"), asking.consent(prompt="consent")
    with on_another_worker():
        change(asking, approval="blocked")
    assert asking.http.get("/oauth/userinfo", headers=bearer(tokens)).status_code == 401
    assert asking.refresh(tokens["refresh_token"]).get_json()["error"] == "invalid_client"
    assert asking.redeem(code).get_json()["error"] == "invalid_client"
    assert asking.token(grant_type="client_credentials").get_json()["error"] == "invalid_client"
    for answer in (asking.authorize(), asking.decide(page)):
        assert answer.status_code == 400 and "Location" not in answer.headers
        assert f"An administrator of {asking.organization.name} has blocked this app" in answer.text
        assert "This app is blocked" in answer.text
    [(living,)] = database.query("SELECT COUNT(*) FROM grants WHERE revoked_at IS NULL")
    reasons = database.query("SELECT DISTINCT CAST(revoked_reason AS CHAR) FROM grants")
    assert living == 0 and len(reasons) == 1


def bearer(tokens: dict[str, Any]) -> dict[str, str]:
    return {"Authorization": f"Bearer {tokens['access_token']}"}


def test_what_a_block_ended_does_not_come_back_with_its_end(asking: Flow) -> None:
    """Neither what a user gave nor what the client has in its own name."""
    change(asking, grant_types=["authorization_code", "refresh_token", "client_credentials"])
    tokens = asking.tokens()
    machine = asking.token(grant_type="client_credentials").get_json()
    assert asking.is_alive(machine["access_token"])
    change(asking, approval="blocked")
    change(asking, approval=None)
    assert not asking.is_alive(tokens["access_token"]) and not asking.is_alive(machine["access_token"])
    assert asking.refresh(tokens["refresh_token"]).get_json()["error"] == "invalid_grant"
    assert asking.is_alive(asking.tokens()["access_token"]), "what is allowed from now on counts"


def test_a_device_of_a_blocked_client_waits_in_vain(http, make, organization) -> None:
    device = Device(http, make, make.user(organization))
    device.sign_in()
    codes = device.code()
    with make.app.app_context():
        update_client(make.actor(organization), device.client.client_id, {"approval": "blocked"})
    assert "No device is waiting with this code" in device.enter(codes["user_code"]).text
    assert device.poll(codes["device_code"]).get_json()["error"] == "invalid_client"
    assert device.ask().get_json()["error"] == "invalid_client"


def test_the_block_stands_in_the_log_of_refused_requests(asking: Flow) -> None:
    from tests.oauth.failure_log import only

    change(asking, approval="blocked")
    asking.authorize()
    assert only(asking).cause == "client_blocked"


# Members ask


def test_a_setting_leaves_it_to_administrators(asking: Flow, database: Database) -> None:
    """oauth.consent.members_may_allow: members are sent to administrators, who allow by themselves."""
    let_members_allow(asking, "verified")
    assert "Ask your administrator to approve Orchard" in asked(asking).text
    assert query_of(asking.authorize(prompt="none"))["error"] == "consent_required"
    change(asking, trust="verified")
    assert 'id="consent-allow"' in asked(asking).text
    let_members_allow(asking, "none")
    assert "Ask your administrator" in asked(asking).text
    boss = Flow(
        asking.app,
        asking.app.test_client(),
        asking.make,
        asking.client,
        asking.make.user(asking.organization, role="admin"),
    )
    boss.sign_in()
    assert 'id="consent-allow"' in boss.consent().text
    change(asking, trust="first_party")
    assert "code" in query_of(asking.authorize()), "an organization's own apps need no leave"


def test_a_consent_from_before_does_not_stand_in_for_the_leave(asking: Flow) -> None:
    asking.decide(asking.consent())
    assert "code" in query_of(asking.authorize())
    change(asking, approval="review")
    assert "Ask your administrator" in asked(asking).text


def test_nobody_allows_by_a_form_of_their_own_what_needs_leave(asking: Flow, database: Database) -> None:
    page = asking.consent()
    change(asking, approval="review")
    answer = asking.decide(page)
    assert answer.status_code == 200 and "Ask your administrator" in answer.text
    assert database.count("authorization_codes") == database.count("consents") == 0


def test_a_member_asks_once_and_sees_that_it_waits(asking: Flow, database: Database) -> None:
    change(asking, approval="review")
    sent = ask(asking)
    assert sent.status_code == 200 and "Waiting for administrator approval" in sent.text
    assert "For the harvest report" in sent.text and "client-request-send" not in sent.text
    again = asked(asking)
    assert "Waiting for administrator approval" in again.text
    token = dict(Page("", 200, again.text).form_with("consent-deny").values)
    # Sent by hand once more: one is open already.
    asking.http.post(
        f"/organizations/{asking.organization.slug}/oauth/authorize/decision",
        data=token | {"decision": "ask", "reason": "Please!"},
    )
    assert database.count("client_requests") == 1
    assert audited(database, "client_request.created") == 1
    back = query_of(asking.decide(again, "consent-deny"))
    assert (back["error"], back["state"]) == ("access_denied", "s")


@pytest.mark.parametrize("reason", ["", "  ", "x" * 301, "a\x00b", "right\u202eleft"])
def test_a_reason_is_a_sentence(asking: Flow, database: Database, reason: str) -> None:
    """PO-2."""
    change(asking, approval="review")
    page = ask(asking, reason)
    assert page.status_code == 400 and 'aria-invalid="true"' in page.text
    assert database.count("client_requests") == 0


def test_an_approval_lets_members_allow_and_a_refusal_does_not(asking: Flow, database: Database) -> None:
    change(asking, approval="review")
    ask(asking)
    with asking.app.app_context():
        actor = asking.make.actor(asking.organization)
        [waiting] = list_client_requests(actor, filters={"status": "open"}).items
        decline_client_request(actor, waiting.public_id, {"message": "Not this one"})
    assert "Ask your administrator" in asked(asking).text, "one may ask again"
    ask(asking)
    with asking.app.app_context():
        [waiting] = list_client_requests(actor, filters={"status": "open"}).items
        approve_client_request(actor, waiting.public_id, {"verified": True})
    page = asked(asking)
    assert 'id="consent-allow"' in page.text and "Reviewed by" in page.text
    assert "code" in query_of(asking.decide(page)), "the person is asked all the same"
    assert audited(database, "client_request.approved") == audited(database, "client_request.declined") == 1


def test_a_device_asks_alike(http, make, organization, database: Database) -> None:
    device = Device(http, make, make.user(organization))
    device.sign_in()
    with make.app.app_context():
        update_client(make.actor(organization), device.client.client_id, {"approval": "review"})
    codes = device.code()
    page = device.press(device.enter(codes["user_code"]), "device-continue")
    assert "Ask your administrator to approve Television" in page.text
    page = device.press(page, "client-request-send", reason="For the kitchen")
    assert "Waiting for administrator approval" in page.text and database.count("client_requests") == 1
    assert device.poll(codes["device_code"]).get_json()["error"] == "authorization_pending"


# Approved for everybody


def approve(flow: Flow, *scopes: str, **fields: Any) -> None:
    change(
        flow, **({"trust": "verified", "approval": "pre_approved", "approved_scopes": list(scopes)} | fields)
    )


def test_nobody_is_asked_about_what_was_approved_for_everybody(asking: Flow, database: Database) -> None:
    """CO-2: and about nothing beyond it."""
    approve(asking, "openid", "profile")
    assert "code" in query_of(asking.authorize(scope="openid profile", prompt="none"))
    assert database.count("consents") == 0
    assert is_consent(asking.authorize(scope="openid profile email"), asking)
    assert is_consent(asking.authorize(scope="openid", prompt="consent"), asking)


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "spa", "redirect_uris": ["https://spa.example/cb"]},
        {"type": "native", "redirect_uris": ["http://127.0.0.1/cb"]},
    ],
    ids=lambda fields: fields["type"],
)
def test_who_cannot_prove_who_it_is_is_not_approved_for_everybody(
    asking: Flow, fields: dict[str, Any]
) -> None:
    """CO-2."""
    from app.rules.errors import InvalidInput

    other = asking.other_client(**fields)
    with pytest.raises(InvalidInput) as refused:
        approve(other, "openid")
    assert refused.value.field == "approval"


def test_a_confidential_client_on_one_s_own_machine_is_asked_about_all_the_same(asking: Flow) -> None:
    """CO-2: the redirect decides."""
    other = asking.other_client(redirect_uris=["http://localhost:3000/cb", REDIRECT_URI])
    approve(other, "openid", "profile")
    assert is_consent(other.authorize(), other)
    assert "code" in query_of(other.authorize(redirect_uri=REDIRECT_URI))


def test_a_mark_of_review_taken_away_takes_the_approval_along(asking: Flow) -> None:
    from app.rules.errors import InvalidInput

    approve(asking, "openid", "profile")
    with pytest.raises(InvalidInput):
        change(asking, trust="unverified")
    change(asking, trust="unverified", approval=None)
    assert is_consent(asking.authorize(), asking)


def test_an_app_that_registered_itself_needs_leave_like_any_other(
    http, make, app, database: Database
) -> None:
    """DC-1: and manages itself no more once it is blocked."""
    open_to_all = {"dynamic_registration": {"mode": "open"}, "consent": {"members_may_allow": "verified"}}
    organization = make.organization(settings={"oauth": open_to_all})
    document = {"redirect_uris": [REDIRECT_URI], "client_name": "Weather Bot"}
    registered = http.post(f"/organizations/{organization.slug}/oauth/register", json=document).get_json()
    make.sign_in(make.user(organization), http)
    flow = Flow(app, http, make, make.client(organization), make.user(organization))
    page = asked(flow, client_id=registered["client_id"], scope="openid")
    assert (
        "Ask your administrator to approve Weather Bot" in page.text
        and "It may not be what its name says" in page.text
    )
    with app.app_context():
        update_client(make.actor(organization), registered["client_id"], {"approval": "blocked"})
    headers = {"Authorization": f"Bearer {registered['registration_access_token']}"}
    own = registered["registration_client_uri"].split("localhost", 1)[1]
    assert http.get(own, headers=headers).status_code == 403
    assert http.put(own, json=document, headers=headers).status_code == 403
