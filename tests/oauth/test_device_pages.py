"""The pages on which a person lets a device in (RFC 8628 sections 3.3 and 5.4), DV-1."""

from __future__ import annotations

from datetime import timedelta

import pytest
from flask.testing import FlaskClient
from sqlalchemy import update

from app.extensions import db
from app.models.token import DeviceCode
from app.operations.authorization import connected_apps, device_codes
from app.operations.authorization.consents import standing_consent
from app.operations.clients.clients import update_client
from app.operations.sign_in.sessions import find_session
from app.operations.store import clock
from app.operations.store.transactions import transaction
from tests.factories import Factory, MadeUser
from tests.oauth.conftest import FAST_KEYS
from tests.oauth.device import Device, plain
from tests.support.person import Page

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
    """By an own path alone (OR-3); the code of the link is still in the field."""
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


def test_what_a_link_carries_goes_into_the_field_only_where_it_can_be_a_code(device: Device) -> None:
    page = device.http.get(f"{device.page_path}?user_code=%22%3E%3Cscript%3Ealert(1)")
    assert "alert" not in page.text


def test_dv1_the_device_is_shown_before_anything_is_allowed(device: Device) -> None:
    """Who asks, from where, and the question: a link that somebody sent skips none of it (section 5.4)."""
    codes = device.code()
    linked = device.http.get(f"{device.page_path}?user_code={codes['user_code']}")
    assert "Television" not in linked.text
    page = device.press(linked, "device-find")
    assert "Television" in page.text and "Is the device in front of you?" in page.text
    assert 'id="device-address">127.0.0.1<' in page.text and "just now" in page.text
    assert "Not reviewed by Acme" in page.text
    assert device.poll(codes["device_code"]).get_json()["error"] == "authorization_pending"


def test_device_consent_shows_what_the_code_flow_shows(device: Device) -> None:
    """CO-1."""
    page = device.press(device.enter(device.code()["user_code"]), "device-continue")
    assert "Television wants to use your Acme account" in page.text and device.user.email in page.text
    assert "It will be able to" in page.text and "Not reviewed by Acme" in page.text


def test_co2_a_public_device_is_asked_about_each_time(device: Device) -> None:
    for _ in range(2):
        page = device.press(device.enter(device.code()["user_code"]), "device-continue")
        assert "consent-allow" in page.text
        device.press(page, "consent-allow")


def test_a_first_partys_confidential_device_is_confirmed_and_not_asked_about(
    http: FlaskClient, make: Factory, user: MadeUser
) -> None:
    device = Device(http, make, user, token_endpoint_auth_method="client_secret_basic", trust="first_party")
    device.sign_in()
    answer = http.post("/oauth/device_authorization", data={"scope": "openid"}, headers=device.client.basic)
    page = device.enter(answer.get_json()["user_code"])
    assert "Is the device in front of you?" in page.text
    assert 'id="device-allowed"' in device.press(page, "device-continue").text


def test_optional_scopes_can_be_left_out(device: Device) -> None:
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


def test_in3_decision_is_valid_only_for_what_was_shown(device: Device) -> None:
    """The client changed between the page and the button: the page comes again."""
    codes = device.code()
    page = device.press(device.enter(codes["user_code"]), "device-continue")
    with device.make.app.app_context():
        update_client(device.make.system(device.organization), device.client.client_id, {"name": "Radio"})
    again = device.press(page, "consent-allow")
    assert "Radio wants to use" in again.text
    assert device.poll(codes["device_code"]).get_json()["error"] == "authorization_pending"
    assert 'id="device-allowed"' in device.press(again, "consent-allow").text


def test_device_cannot_be_allowed_before_consent_was_shown(device: Device) -> None:
    """A form made by hand gets the consent page, not the access."""
    codes = device.code()
    page = device.enter(codes["user_code"])
    token = dict(Page("", 200, page.text).form_with("device-continue").values)["csrf_token"]
    body = {"csrf_token": token, "user_code": codes["user_code"], "decision": "allow"}
    assert "consent-allow" in device.http.post(device.page_path, data=body).text
    assert device.poll(codes["device_code"]).get_json()["error"] == "authorization_pending"


def test_cf1_a_form_without_a_token_changes_nothing(device: Device) -> None:
    codes = device.code()
    answer = device.http.post(device.page_path, data={"user_code": codes["user_code"], "decision": "deny"})
    assert answer.status_code == 400
    assert device.poll(codes["device_code"]).get_json()["error"] == "authorization_pending"


def test_dv1_five_wrong_codes_are_all_a_session_may_try(device: Device) -> None:
    codes = device.code()
    for left in (4, 3, 2, 1, 0):
        page = device.enter(WRONG)
        assert page.status_code == 400 and "No device is waiting with this code" in page.text
        assert (f"{left} attempts" in page.text) == (left > 1)
    page = device.enter(codes["user_code"])
    assert page.status_code == 429 and int(page.headers["Retry-After"]) > 60
    assert "Television" not in page.text


def test_right_codes_and_mistakes_of_form_count_for_nothing(device: Device) -> None:
    for _ in range(7):
        assert device.enter("BCD").status_code == 400
        assert device.enter(device.code()["user_code"]).status_code == 200


def test_a_code_of_another_organization_is_a_wrong_one(device: Device) -> None:
    """TN-6."""
    other = Device(device.http, device.make, device.make.user(device.make.organization()))
    assert device.enter(other.code()["user_code"]).status_code == 400


def test_a_code_that_ended_or_was_decided_is_a_wrong_one(device: Device) -> None:
    decided = device.code()["user_code"]
    device.allow(decided)
    assert device.enter(decided).status_code == 400

    @transaction
    def end() -> None:
        db.session.execute(update(DeviceCode).values(expires_at=clock.now() - timedelta(seconds=1)))

    ended = device.code()["user_code"]
    with device.make.app.app_context():
        end()
    assert device.enter(ended).status_code == 400


def test_denied_device_cannot_be_allowed_afterwards(device: Device) -> None:
    codes = device.code()
    page = device.enter(codes["user_code"])
    assert 'id="device-denied"' in device.press(page, "device-stop").text
    assert device.press(page, "device-continue").status_code == 400
    assert device.poll(codes["device_code"]).get_json()["error"] == "access_denied"


def test_of_two_decisions_on_the_same_look_the_first_counts(device: Device) -> None:
    """Both pages were open: the row decides, not what was read before."""
    codes = device.code()
    with device.make.app.app_context():
        session = find_session(device.make.sign_in(device.user).token)
        assert session is not None
        actor = session.actor(ip_address="192.0.2.1")
        found = device_codes.find_device_request(actor, codes["user_code"])
        device_codes.deny_device(actor, found)
        with pytest.raises(device_codes.WrongUserCode):
            device_codes.allow_device(actor, found, session, found.scopes, remember=True)
        assert standing_consent(found.client, device.user.id).scopes == ()
    assert device.poll(codes["device_code"]).get_json()["error"] == "access_denied"


def test_co3_what_was_allowed_stands_among_the_connected_apps_and_ends_there(device: Device) -> None:
    """Withdrawn before the device came back: it gets nothing."""
    codes = device.code()
    device.allow(codes["user_code"])
    actor = device.make.actor(device.organization, user=device.user)
    with device.make.app.app_context():
        [record] = connected_apps.list_consents(actor)
        assert record.client_name == "Television"
        connected_apps.withdraw_consent(actor, record.id)
    assert device.poll(codes["device_code"]).get_json()["error"] == "expired_token"


def test_the_address_without_an_organization_leads_to_one(device: Device) -> None:
    code = plain(device.code()["user_code"])
    page = device.http.get(f"/device?user_code={code}")
    assert f'href="{device.page_path}?user_code=' in page.text
    answer = device.http.get("/device", query_string={"organization": device.organization.slug})
    assert (answer.status_code, answer.headers["Location"]) == (303, device.page_path)
    assert device.http.get("/device?organization=nobody").status_code == 404


def test_cr1_the_pages_have_no_cors(device: Device) -> None:
    answer = device.http.get(device.page_path, headers={"Origin": "https://evil.example"})
    assert not [name for name, _ in answer.headers if name.startswith("Access-Control")]
