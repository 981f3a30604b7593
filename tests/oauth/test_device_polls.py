"""Device polling until the user has decided (RFC 8628 sections 3.4 and 3.5), DV-1."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from datetime import timedelta

import pytest
from flask.testing import FlaskClient
from sqlalchemy import update

from app.extensions import db
from app.models.user import User
from app.operations.authorization import device_polls
from app.operations.clients import resources
from app.operations.clients.clients import update_client
from app.operations.store import clock
from app.operations.store.transactions import transaction
from tests.factories import Factory, MadeUser
from tests.oauth.conftest import FAST_KEYS, audited
from tests.oauth.device import Device
from tests.support.databases import Database


@pytest.fixture
def user(make: Factory) -> MadeUser:
    return make.user(make.organization(settings=FAST_KEYS))


@pytest.fixture
def device(http: FlaskClient, make: Factory, user: MadeUser) -> Device:
    return Device(http, make, user, scopes=["openid", "profile", "offline_access"])


def test_poll_before_the_decision_is_pending(device: Device) -> None:
    answer = device.poll(device.code()["device_code"])
    assert (answer.status_code, answer.get_json()["error"]) == (400, "authorization_pending")


def test_fast_polls_increase_the_interval_by_five_seconds(device: Device, database: Database) -> None:
    """DV-1."""
    code = device.code()["device_code"]
    assert device.poll(code).get_json()["error"] == "authorization_pending"
    for expected in (10, 15):
        assert device.poll(code).get_json()["error"] == "slow_down"
        assert database.query("SELECT interval_seconds FROM device_codes") == [(expected,)]
    device.wait()
    assert device.poll(code).get_json()["error"] == "authorization_pending"
    assert database.query("SELECT interval_seconds FROM device_codes") == [(15,)]


def test_interval_has_a_maximum(device: Device, database: Database) -> None:
    """Very frequent polling does not cause a write for each poll."""
    code = device.code()["device_code"]
    for _ in range(40):
        device.poll(code)
    assert database.query("SELECT interval_seconds FROM device_codes") == [
        (device_polls.MAX_INTERVAL_SECONDS,)
    ]


def test_expired_code_returns_expired_token(device: Device) -> None:
    code = device.code()["device_code"]
    with device.make.app.app_context():
        ended = clock.now() - timedelta(seconds=1)
    device.change(expires_at=ended)
    assert device.poll(code).get_json()["error"] == "expired_token"


def test_approved_code_returns_tokens_once(device: Device, database: Database) -> None:
    """DV-1: single use; the tokens are like those of any grant."""
    codes = device.code(scope="openid profile offline_access")
    device.sign_in()
    device.allow(codes["user_code"])
    answer = device.poll(codes["device_code"])
    assert answer.status_code == 200, answer.text
    body = answer.get_json()
    assert set(body) == {"access_token", "token_type", "expires_in", "scope", "refresh_token", "id_token"}
    again = device.poll(codes["device_code"])
    assert (again.status_code, again.get_json()["error"]) == (400, "invalid_grant")
    info = device.http.get("/oauth/userinfo", headers={"Authorization": f"Bearer {body['access_token']}"})
    assert info.get_json()["sub"] == device.user.public_id
    assert audited(database, "device_code.allowed") == audited(database, "grant.created") == 1


def test_device_tokens_outlive_the_browser_session(device: Device) -> None:
    """Signing out of the browser that approved the device does not affect the device."""
    codes = device.code()
    device.sign_in()
    device.allow(codes["user_code"])
    tokens = device.poll(codes["device_code"]).get_json()
    token = tokens["access_token"]
    claims = tokens["id_token"].split(".")[1]
    assert "sid" not in json.loads(urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    page = device.http.get(f"/organizations/{device.organization.slug}/logout")
    device.press(page, "logout-confirm")
    answer = device.http.get("/oauth/userinfo", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 200


def test_denied_device_gets_access_denied(device: Device, database: Database) -> None:
    codes = device.code()
    device.sign_in()
    page = device.press(device.enter(codes["user_code"]), "device-stop")
    assert 'id="device-denied"' in page.text
    assert device.poll(codes["device_code"]).get_json()["error"] == "access_denied"
    assert audited(database, "device_code.denied") == 1


def test_code_of_another_client_is_rejected(device: Device) -> None:
    """CD-3: the other client neither gets tokens nor consumes the code."""
    codes = device.code()
    other = device.register(name="Radio")
    early = device.poll(codes["device_code"], client_id=other.client_id)
    assert early.get_json()["error"] == "invalid_grant"
    device.sign_in()
    device.allow(codes["user_code"])
    refused = device.poll(codes["device_code"], client_id=other.client_id)
    assert refused.get_json()["error"] == "invalid_grant"
    assert device.poll(codes["device_code"]).status_code == 200


@pytest.mark.parametrize("presented", ["x", "gth_dc_x", "ü" * 300, "gth_at_" + "0" * 59])
def test_malformed_device_code_is_rejected(device: Device, presented: str) -> None:
    assert device.poll(presented).get_json()["error"] == "invalid_grant"


def test_missing_device_code_is_rejected(device: Device) -> None:
    assert device.poll(None).get_json()["error"] == "invalid_request"


@pytest.mark.parametrize("values", [{"status": "disabled"}, {"password_changed_at": "now"}])
def test_disabling_the_user_invalidates_the_approved_code(device: Device, values: dict[str, object]) -> None:
    """CD-8."""
    codes = device.code()
    device.sign_in()
    device.allow(codes["user_code"])

    @transaction
    def act() -> None:
        moment = clock.now() + timedelta(seconds=1)
        changed = {name: moment if value == "now" else value for name, value in values.items()}
        db.session.execute(update(User).where(User.id == device.user.id).values(changed))

    with device.make.app.app_context():
        act()
    assert device.poll(codes["device_code"]).get_json()["error"] == "invalid_grant"


def test_tokens_are_limited_to_the_requested_resources(device: Device) -> None:
    """DC-5, RFC 8707: a poll can narrow the resources of the request but not add any."""
    orders, bills = "https://orders.example/api", "https://bills.example/api"
    with device.make.app.app_context():
        actor = device.make.actor(device.organization)
        for identifier, scope in ((orders, "orders:read"), (bills, "bills:read")):
            fields = {"identifier": identifier, "name": scope, "scopes": [{"name": scope}]}
            resources.define_resource(actor, fields)
        update_client(actor, device.client.client_id, {"scopes": ["openid", "orders:read", "bills:read"]})
    refused = device.ask(scope="orders:read", resource="https://unknown.example")
    assert refused.get_json()["error"] == "invalid_target"
    codes = device.code(scope="openid orders:read", resource=orders)
    device.sign_in()
    device.allow(codes["user_code"])
    beyond = device.poll(codes["device_code"], resource=bills)
    assert beyond.get_json()["error"] == "invalid_target"
    answer = device.poll(codes["device_code"], resource=orders)
    assert answer.status_code == 200, answer.text
    assert "orders:read" in answer.get_json()["scope"]


def test_scope_removed_from_the_client_is_not_granted(device: Device) -> None:
    codes = device.code(scope="openid profile")
    device.sign_in()
    device.allow(codes["user_code"])
    with device.make.app.app_context():
        system = device.make.system(device.organization)
        update_client(system, device.client.client_id, {"scopes": ["openid", "offline_access"]})
    assert device.poll(codes["device_code"]).get_json()["scope"] == "openid"
