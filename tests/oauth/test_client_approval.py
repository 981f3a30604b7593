"""Client approval: blocked clients, approval requests and organization-wide approval."""

from __future__ import annotations

from typing import Any

import pytest

from app.operations.authorization.approval_requests import (
    approve_client_request,
    decline_client_request,
    list_client_requests,
)
from app.operations.clients.clients import update_client
from app.operations.grants.grant_lists import list_grants
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
from tests.support.form_browser import Page

EVERYTHING = "openid profile email offline_access"


def change(flow: Flow, **fields: Any) -> None:
    """Change the client as an administrator."""
    with flow.app.app_context():
        update_client(flow.make.actor(flow.organization), flow.client.client_id, fields)


def let_members_allow(flow: Flow, which: str) -> None:
    """Set whether members may consent by themselves."""
    with flow.app.app_context():
        changes = {"oauth": {"consent": {"members_may_allow": which}}}
        update_settings(flow.make.system(flow.organization), flow.organization.slug, changes)


def asked(flow: Flow, **changes: str | None):
    """Return the page that the user is sent to."""
    page = flow.http.get(location(flow.authorize(**changes)))
    assert page.status_code == 200, page.text[:500]
    return page


def ask(flow: Flow, reason: str = "For the harvest report"):
    """Submit the member's request and return the page."""
    return flow.decide(asked(flow), "client-request-send", reason=reason)


def test_blocked_client_is_rejected_everywhere_immediately(asking: Flow, database: Database) -> None:
    """CO-3: tokens, refresh families, codes and new requests, also on a worker with an older cache."""
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
    with asking.app.app_context():
        assert list_grants(asking.make.actor(asking.organization)).items == ()
    # A statement that changes all grants of a client with very many is not done in time.
    assert database.query("SELECT COUNT(*) FROM grants WHERE revoked_at IS NOT NULL") == [(0,)]


def bearer(tokens: dict[str, Any]) -> dict[str, str]:
    return {"Authorization": f"Bearer {tokens['access_token']}"}


def test_unblocking_a_client_does_not_restore_its_tokens(asking: Flow) -> None:
    """Neither those issued for users nor the client's own."""
    change(asking, grant_types=["authorization_code", "refresh_token", "client_credentials"])
    tokens = asking.tokens()
    machine = asking.token(grant_type="client_credentials").get_json()
    assert asking.is_alive(machine["access_token"])
    change(asking, approval="blocked")
    change(asking, approval=None)
    assert not asking.is_alive(tokens["access_token"]) and not asking.is_alive(machine["access_token"])
    assert asking.refresh(tokens["refresh_token"]).get_json()["error"] == "invalid_grant"
    assert asking.is_alive(asking.tokens()["access_token"]), "what is allowed from now on counts"


def test_device_of_a_blocked_client_is_denied(http, make, organization) -> None:
    device = Device(http, make, make.user(organization))
    device.sign_in()
    codes = device.code()
    with make.app.app_context():
        update_client(make.actor(organization), device.client.client_id, {"approval": "blocked"})
    assert "connected at the moment" in device.enter(codes["user_code"]).text
    assert device.poll(codes["device_code"]).get_json()["error"] == "invalid_client"
    assert device.ask().get_json()["error"] == "invalid_client"


def test_blocked_client_appears_in_the_failed_request_log(asking: Flow) -> None:
    from tests.oauth.failure_log import only

    change(asking, approval="blocked")
    asking.authorize()
    assert only(asking).cause == "client_blocked"


def test_setting_requires_administrator_approval(asking: Flow, database: Database) -> None:
    """oauth.consent.members_may_allow: members need an administrator, and administrators can allow."""
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


def test_earlier_consent_does_not_replace_approval(asking: Flow) -> None:
    asking.decide(asking.consent())
    assert "code" in query_of(asking.authorize())
    change(asking, approval="review")
    assert "Ask your administrator" in asked(asking).text


def test_forged_consent_form_does_not_replace_approval(asking: Flow, database: Database) -> None:
    page = asking.consent()
    change(asking, approval="review")
    answer = asking.decide(page)
    assert answer.status_code == 200 and "Ask your administrator" in answer.text
    assert database.count("authorization_codes") == database.count("consents") == 0


def test_member_requests_approval_once_and_sees_it_pending(asking: Flow, database: Database) -> None:
    change(asking, approval="review")
    sent = ask(asking)
    assert sent.status_code == 200 and "Waiting for administrator approval" in sent.text
    assert "For the harvest report" in sent.text and "client-request-send" not in sent.text
    again = asked(asking)
    assert "Waiting for administrator approval" in again.text
    token = dict(Page("", 200, again.text).form_with("consent-deny").values)
    # Submitting the form again creates no second request.
    asking.http.post(
        f"/organizations/{asking.organization.slug}/oauth/authorize/decision",
        data=token | {"decision": "ask", "reason": "Please!"},
    )
    assert database.count("client_requests") == 1
    assert audited(database, "client_request.created") == 1
    back = query_of(asking.decide(again, "consent-deny"))
    assert (back["error"], back["state"]) == ("access_denied", "s")


@pytest.mark.parametrize("reason", ["", "  ", "x" * 301, "a\x00b", "right\u202eleft"])
def test_approval_reason_must_be_a_sentence(asking: Flow, database: Database, reason: str) -> None:
    """PO-2."""
    change(asking, approval="review")
    page = ask(asking, reason)
    assert page.status_code == 400 and 'aria-invalid="true"' in page.text
    assert database.count("client_requests") == 0


def test_approval_lets_members_consent_and_rejection_does_not(asking: Flow, database: Database) -> None:
    change(asking, approval="review")
    ask(asking)
    with asking.app.app_context():
        actor = asking.make.actor(asking.organization)
        [waiting] = list_client_requests(actor, filters={"status": "open"}).items
        decline_client_request(actor, waiting.public_id, {"message": "Not <b>this</b> one"})
    again = asked(asking)
    assert "Ask your administrator" in again.text, "one may ask again"
    assert "declined your last request" in again.text and "Not &lt;b&gt;this&lt;/b&gt; one" in again.text
    ask(asking)
    with asking.app.app_context():
        [waiting] = list_client_requests(actor, filters={"status": "open"}).items
        approve_client_request(actor, waiting.public_id, {"verified": True})
    page = asked(asking)
    assert 'id="consent-allow"' in page.text and "Reviewed by" in page.text
    assert "code" in query_of(asking.decide(page)), "the user is asked nevertheless"
    assert audited(database, "client_request.approved") == audited(database, "client_request.declined") == 1


def test_device_flow_requires_approval_too(http, make, organization, database: Database) -> None:
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


def approve(flow: Flow, *scopes: str, **fields: Any) -> None:
    change(
        flow, **({"trust": "verified", "approval": "pre_approved", "approved_scopes": list(scopes)} | fields)
    )


def test_approved_scopes_need_no_consent(asking: Flow, database: Database) -> None:
    """CO-2: only the approved scopes are covered."""
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
def test_public_client_cannot_be_approved_for_everybody(asking: Flow, fields: dict[str, Any]) -> None:
    """CO-2."""
    from app.rules.errors import InvalidInput

    other = asking.other_client(**fields)
    with pytest.raises(InvalidInput) as refused:
        approve(other, "openid")
    assert refused.value.field == "approval"


def test_confidential_client_with_loopback_redirect_needs_consent(asking: Flow) -> None:
    """CO-2: the redirect URI decides."""
    other = asking.other_client(redirect_uris=["http://localhost:3000/cb", REDIRECT_URI])
    approve(other, "openid", "profile")
    assert is_consent(other.authorize(), other)
    assert "code" in query_of(other.authorize(redirect_uri=REDIRECT_URI))


def test_removing_the_reviewed_mark_removes_the_approval(asking: Flow) -> None:
    from app.rules.errors import InvalidInput

    approve(asking, "openid", "profile")
    with pytest.raises(InvalidInput):
        change(asking, trust="unverified")
    change(asking, trust="unverified", approval=None)
    assert is_consent(asking.authorize(), asking)


def test_self_registered_client_needs_approval(http, make, app, database: Database) -> None:
    """DC-1: a blocked client cannot manage its registration either."""
    open_to_all = {"dynamic_registration": {"mode": "open"}, "consent": {"members_may_allow": "verified"}}
    organization = make.organization(settings={"oauth": open_to_all})
    document = {"redirect_uris": [REDIRECT_URI], "client_name": "Weather Bot"}
    registered = http.post(f"/organizations/{organization.slug}/oauth/register", json=document).get_json()
    make.sign_in(make.user(organization), http)
    flow = Flow(app, http, make, make.client(organization), make.user(organization))
    page = asked(flow, client_id=registered["client_id"], scope="openid")
    assert (
        "Ask your administrator to approve Weather Bot" in page.text
        and "Allow access only if you trust it" in page.text
    )
    with app.app_context():
        update_client(make.actor(organization), registered["client_id"], {"approval": "blocked"})
    headers = {"Authorization": f"Bearer {registered['registration_access_token']}"}
    own = registered["registration_client_uri"].split("localhost", 1)[1]
    assert http.get(own, headers=headers).status_code == 403
    assert http.put(own, json=document, headers=headers).status_code == 403
