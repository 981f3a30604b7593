"""The pages where a user approves a device (RFC 8628 sections 3.3 and 5.4), DV-1."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from flask.testing import FlaskClient
from sqlalchemy import update

from app.extensions import db
from app.models.token import DeviceCode
from app.operations.authorization import connected_apps, device_codes
from app.operations.authorization.consents import get_consent_state
from app.operations.clients import resources
from app.operations.clients.clients import update_client
from app.operations.sign_in.sessions import end_other_sessions, find_session
from app.operations.store import clock
from app.operations.store.transactions import transaction
from tests.factories import Factory, MadeUser
from tests.oauth.conftest import FAST_KEYS
from tests.oauth.device import Device, plain
from tests.support.form_browser import Page

pytestmark = pytest.mark.either

WRONG = "BBBB-BBBB"


@pytest.fixture
def user(make: Factory) -> MadeUser:
    return make.user(make.organization(settings=FAST_KEYS, name="Acme"))


@pytest.fixture
def device(http: FlaskClient, make: Factory, user: MadeUser) -> Device:
    made = Device(http, make, user, scopes=["openid", "profile", "email"], optional_scopes=["email"])
    made.sign_in()
    return made


def test_device_page_returns_after_sign_in(http: FlaskClient, make: Factory, user: MadeUser) -> None:
    """Only to a local path (OR-3). The code from the link is still in the field."""
    device = Device(http, make, user)
    codes = device.code()
    sent = http.get(codes["verification_uri_complete"].removeprefix("http://localhost"))
    assert sent.status_code == 303
    page = http.get(sent.headers["Location"])
    form = Page("", page.status_code, page.text).form_with("login-submit")
    values = dict(form.values) | {"email": user.email, "password": user.password}
    back = http.post(form.action, data=values)
    assert back.status_code == 303
    page = http.get(back.headers["Location"])
    assert f'value="{codes["user_code"]}"' in page.text


def test_not_you_asks_for_another_account_and_keeps_the_code(device: Device, user: MadeUser) -> None:
    code = device.code()["user_code"]
    page = device.http.get(f"{device.page_path}?user_code={code}")
    link = unescape(re.findall(r'href="([^"]*)">Not you\?', page.text)[0])
    sign_in = device.http.get(link)
    assert sign_in.status_code == 200 and user.email not in sign_in.text
    form = Page("", sign_in.status_code, sign_in.text).form_with("login-submit")
    assert dict(form.values)["next"] == f"{device.page_path}?user_code={code}"


def test_only_a_plausible_code_is_prefilled_from_the_link(device: Device) -> None:
    page = device.http.get(f"{device.page_path}?user_code=%22%3E%3Cscript%3Ealert(1)")
    assert "alert" not in page.text


def test_device_is_shown_before_it_can_be_approved(device: Device) -> None:
    """DV-1, RFC 8628 section 5.4: a link cannot skip who asks, from where, and the question."""
    codes = device.code()
    linked = device.http.get(f"{device.page_path}?user_code={codes['user_code']}")
    assert "Television" not in linked.text
    page = device.press(linked, "device-find")
    assert "Television" in page.text and "Continue only if the device is in front of you." in page.text
    assert 'id="device-address">127.0.0.1<' in page.text and "just now" in page.text
    assert "Not reviewed by Acme" in page.text
    assert device.poll(codes["device_code"]).get_json()["error"] == "authorization_pending"


def test_device_consent_shows_what_the_code_flow_shows(device: Device) -> None:
    """CO-1."""
    page = device.press(device.enter(device.code()["user_code"]), "device-continue")
    assert "Television wants to use your Acme account" in page.text and device.user.email in page.text
    assert "will be able to" in page.text and "Not reviewed by Acme" in page.text


def test_device_consent_shows_a_resource_without_scopes_each_time(
    http: FlaskClient, make: Factory, user: MadeUser
) -> None:
    """CO-1, CO-2: the device gets tokens for it, and a stored consent covers only scopes."""
    device = Device(http, make, user, token_endpoint_auth_method="client_secret_basic", trust="verified")
    device.sign_in()
    with make.app.app_context():
        fields = {"identifier": "https://stock.example", "name": "Stock", "access_policy": "open"}
        resources.define_resource(
            make.actor(user.organization), fields | {"scopes": [{"name": "stock:read"}]}
        )
    basic = device.client.basic
    device.allow(device.code(headers=basic)["user_code"])
    for _ in range(2):
        codes = device.code(headers=basic, resource="https://stock.example", scope="openid profile")
        page = device.press(device.enter(codes["user_code"]), "device-continue")
        assert 'id="bare-resources"' in page.text and "https://stock.example" in page.text
        assert 'id="device-allowed"' in device.press(page, "consent-allow").text


def test_public_device_is_asked_every_time(device: Device) -> None:
    """CO-2."""
    for _ in range(2):
        page = device.press(device.enter(device.code()["user_code"]), "device-continue")
        assert "consent-allow" in page.text
        device.press(page, "consent-allow")


def test_first_party_confidential_device_needs_only_confirmation(
    http: FlaskClient, make: Factory, user: MadeUser
) -> None:
    device = Device(http, make, user, token_endpoint_auth_method="client_secret_basic", trust="first_party")
    device.sign_in()
    answer = http.post("/oauth/device_authorization", data={"scope": "openid"}, headers=device.client.basic)
    page = device.enter(answer.get_json()["user_code"])
    assert "Continue only if the device is in front of you." in page.text
    assert 'id="device-allowed"' in device.press(page, "device-continue").text


def test_optional_scopes_can_be_declined(device: Device) -> None:
    codes = device.code(scope="openid profile email")
    page = device.press(device.enter(codes["user_code"]), "device-continue")
    form = Page("", 200, page.text).form_with("consent-allow")
    token = dict(form.values)["csrf_token"]
    body = {
        "csrf_token": token,
        "user_code": codes["user_code"],
        "decision": "allow",
        "lasts": "until_removed",
    }
    body["scope"] = ["openid"]
    assert 'id="device-allowed"' in device.http.post(device.page_path, data=body).text
    assert device.poll(codes["device_code"]).get_json()["scope"] == "openid profile"


def test_decision_is_valid_only_for_what_was_shown(device: Device) -> None:
    """IN-3: the client changed while the page was open, so the page is shown again."""
    codes = device.code()
    page = device.press(device.enter(codes["user_code"]), "device-continue")
    with device.make.app.app_context():
        update_client(device.make.system(device.organization), device.client.client_id, {"name": "Radio"})
    again = device.press(page, "consent-allow")
    assert "Radio wants to use" in again.text
    assert device.poll(codes["device_code"]).get_json()["error"] == "authorization_pending"
    assert 'id="device-allowed"' in device.press(again, "consent-allow").text


def test_device_cannot_be_allowed_before_consent_was_shown(device: Device) -> None:
    """A forged form gets the consent page instead of access."""
    codes = device.code()
    page = device.enter(codes["user_code"])
    token = dict(Page("", 200, page.text).form_with("device-continue").values)["csrf_token"]
    body = {"csrf_token": token, "user_code": codes["user_code"], "decision": "allow"}
    assert "consent-allow" in device.http.post(device.page_path, data=body).text
    assert device.poll(codes["device_code"]).get_json()["error"] == "authorization_pending"


def test_form_without_csrf_token_changes_nothing(device: Device) -> None:
    """CF-1."""
    codes = device.code()
    answer = device.http.post(device.page_path, data={"user_code": codes["user_code"], "decision": "deny"})
    assert answer.status_code == 400
    assert device.poll(codes["device_code"]).get_json()["error"] == "authorization_pending"


def test_user_may_try_five_wrong_codes_whatever_the_session(device: Device) -> None:
    """DV-1."""
    codes = device.code()
    for left in (4, 3, 2, 1, 0):
        page = device.enter(WRONG)
        assert page.status_code == 400 and "No device is waiting with this code" in page.text
        assert (f"{left} attempts" in page.text) == (left > 1)
    page = device.enter(codes["user_code"])
    assert page.status_code == 429 and int(page.headers["Retry-After"]) > 60
    assert "Try again in 15 minutes" in page.text
    assert "Television" not in page.text
    device.sign_in()
    assert device.enter(codes["user_code"]).status_code == 429


def test_valid_codes_and_malformed_input_do_not_count_as_attempts(device: Device) -> None:
    for _ in range(7):
        assert device.enter("BCD").status_code == 400
        assert device.enter(device.code()["user_code"]).status_code == 200


def test_code_of_another_organization_is_rejected(device: Device) -> None:
    """TN-6."""
    other = Device(device.http, device.make, device.make.user(device.make.organization()))
    assert device.enter(other.code()["user_code"]).status_code == 400


def test_page_says_why_a_code_has_ended_and_counts_it_as_no_guess(device: Device) -> None:
    decided, refused = device.code()["user_code"], device.code()["user_code"]
    device.allow(decided)
    device.press(device.enter(refused), "device-stop")

    @transaction
    def end() -> None:
        db.session.execute(update(DeviceCode).values(expires_at=clock.now() - timedelta(seconds=1)))

    ended = device.code()["user_code"]
    with device.make.app.app_context():
        end()
    for code, words in (
        (decided, "already used to connect a device"),
        (refused, "This device was refused"),
        (ended, "has expired"),
        ("BCD", "Enter the eight letters"),
    ):
        page = device.enter(code)
        assert page.status_code == 400 and words in page.text and "attempt" not in page.text
    assert "4 attempts left" in device.enter(WRONG).text


def test_denied_device_cannot_be_allowed_afterwards(device: Device) -> None:
    codes = device.code()
    page = device.enter(codes["user_code"])
    assert 'id="device-denied"' in device.press(page, "device-stop").text
    assert device.press(page, "device-continue").status_code == 400
    assert device.poll(codes["device_code"]).get_json()["error"] == "access_denied"


def test_first_of_two_concurrent_decisions_applies(device: Device) -> None:
    """Both pages were open. The row decides, not what was read before."""
    codes = device.code()
    with device.make.app.app_context():
        session = find_session(device.make.sign_in(device.user).token)
        assert session is not None
        actor = session.actor(ip_address="192.0.2.1")
        found = device_codes.find_device_request(actor, codes["user_code"])
        device_codes.deny_device(actor, found)
        with pytest.raises(device_codes.WrongUserCode):
            device_codes.allow_device(actor, found, session, found.scopes, remember=True)
        assert get_consent_state(found.client, device.user.id).scopes == ()
    assert device.poll(codes["device_code"]).get_json()["error"] == "access_denied"


@pytest.mark.parametrize("trust", ["verified", "first_party"])
def test_ss6_session_that_ends_during_the_decision_allows_nothing(
    http: FlaskClient, make: Factory, user: MadeUser, monkeypatch: pytest.MonkeyPatch, trust: str
) -> None:
    """The page had read the session before the user signed out elsewhere. A device's tokens outlive sessions."""
    device = Device(http, make, user, token_endpoint_auth_method="client_secret_basic", trust=trust)
    device.sign_in()
    codes = device.code(headers=device.client.basic)
    page = device.enter(codes["user_code"])
    if trust == "verified":
        page = device.press(page, "device-continue")
    elsewhere = make.sign_in(user).token
    allow_device = device_codes.allow_device

    def allow_after_sign_out(*arguments: Any, **keywords: Any) -> None:
        other = find_session(elsewhere)
        assert other is not None
        assert end_other_sessions(other.actor()) == 1
        allow_device(*arguments, **keywords)

    monkeypatch.setattr(device_codes, "allow_device", allow_after_sign_out)
    answer = device.press(page, "consent-allow" if trust == "verified" else "device-continue")
    assert (answer.status_code, "/login?next=" in answer.headers["Location"]) == (303, True)
    polled = device.poll(codes["device_code"], headers=device.client.basic)
    assert polled.get_json()["error"] == "authorization_pending"


def test_approved_device_is_listed_and_can_be_removed_among_connected_apps(device: Device) -> None:
    """CO-3: removed before the device polled again, so it gets no tokens."""
    codes = device.code()
    device.allow(codes["user_code"])
    actor = device.make.actor(device.organization, user=device.user)
    with device.make.app.app_context():
        [record] = connected_apps.list_consents(actor)
        assert record.client_name == "Television"
        connected_apps.withdraw_consent(actor, record.id)
    assert device.poll(codes["device_code"]).get_json()["error"] == "expired_token"


def test_url_without_an_organization_redirects_to_one(device: Device) -> None:
    code = plain(device.code()["user_code"])
    page = device.http.get(f"/device?user_code={code}")
    assert f'href="{device.page_path}?user_code=' in page.text
    answer = device.http.get("/device", query_string={"organization": device.organization.slug})
    assert (answer.status_code, answer.headers["Location"]) == (303, device.page_path)
    assert device.http.get("/device?organization=nobody").status_code == 404


def test_device_pages_have_no_cors_headers(device: Device) -> None:
    """CR-1."""
    answer = device.http.get(device.page_path, headers={"Origin": "https://evil.example"})
    assert not [name for name, _ in answer.headers if name.startswith("Access-Control")]
