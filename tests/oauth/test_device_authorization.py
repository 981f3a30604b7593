"""The device authorization endpoint: codes, limits and errors (RFC 8628 sections 3.1 and 3.2), DV-1."""

from __future__ import annotations

from datetime import timedelta

import pytest
from flask.testing import FlaskClient
from sqlalchemy import update

from app.extensions import db
from app.models.organization import Organization
from app.operations.authorization import device_codes
from app.operations.store import clock
from app.operations.store.transactions import transaction
from app.rules.authorization.interaction import ALPHABET
from tests.factories import Factory, MadeUser
from tests.oauth.conftest import FAST_KEYS
from tests.oauth.device import GRANT, Device, plain
from tests.support.databases import Database


@pytest.fixture
def user(make: Factory) -> MadeUser:
    return make.user(make.organization(settings=FAST_KEYS))


@pytest.fixture
def device(http: FlaskClient, make: Factory, user: MadeUser) -> Device:
    return Device(http, make, user, scopes=["openid", "profile", "offline_access"])


def test_response_has_the_standard_fields(device: Device) -> None:
    """RFC 8628 section 3.2; lifetimes come from the organization's settings."""
    answer = device.ask()
    body = answer.get_json()
    assert answer.headers["Cache-Control"] == "no-store"
    assert (body["expires_in"], body["interval"]) == (900, 5)
    assert body["verification_uri"] == f"http://localhost{device.page_path}"
    assert body["verification_uri_complete"] == f"{body['verification_uri']}?user_code={body['user_code']}"
    assert body["device_code"].startswith("gth_dc_")


def test_user_code_has_eight_letters_of_twenty(device: Device) -> None:
    """DV-1."""
    codes = {plain(device.code()["user_code"]) for _ in range(20)}
    assert len(codes) == 20
    assert len(ALPHABET) == 20 and not set(ALPHABET) & set("AEIOUY")
    assert all(len(code) == 8 and set(code) <= set(ALPHABET) for code in codes)


def test_user_code_in_use_is_drawn_again(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    draws = iter(("BCDFGHJK", "BCDFGHJK", "LMNPQRST"))
    monkeypatch.setattr("app.oauth.device.generate_user_code", lambda: next(draws))
    assert [plain(device.code()["user_code"]) for _ in range(2)] == ["BCDFGHJK", "LMNPQRST"]


def test_settings_control_lifetime_and_interval(http: FlaskClient, make: Factory) -> None:
    settings = {"oauth": {"device_code_ttl_seconds": 120, "device_poll_interval_seconds": 11}}
    device = Device(http, make, make.user(make.organization(settings=settings)))
    body = device.code()
    assert (body["expires_in"], body["interval"]) == (120, 11)


def test_device_and_user_code_are_not_stored_in_clear_text(device: Device, database: Database) -> None:
    """TK-2; the user code is short, so its digest is keyed."""
    body = device.code()
    everything = repr(database.query("SELECT * FROM device_codes"))
    assert body["device_code"] not in everything and plain(body["user_code"]) not in everything


@pytest.mark.parametrize(
    ("changes", "status", "error"),
    [
        ({"scope": "openid email"}, 400, "invalid_scope"),
        ({"scope": 'openid "'}, 400, "invalid_scope"),
        ({"client_id": None}, 401, "invalid_client"),
        ({"client_id": "cli_00000000_00000000000000000000000000"}, 401, "invalid_client"),
    ],
)
def test_invalid_request_is_rejected(
    device: Device, changes: dict[str, str | None], status: int, error: str
) -> None:
    answer = device.ask(**changes)
    assert (answer.status_code, answer.get_json()["error"]) == (status, error)


def test_client_without_the_grant_type_is_rejected(device: Device) -> None:
    client = device.make.client(device.organization)
    answer = device.http.post("/oauth/device_authorization", data={"scope": "openid"}, headers=client.basic)
    assert (answer.status_code, answer.get_json()["error"]) == (400, "unauthorized_client")


def test_client_of_another_organization_is_unknown(device: Device) -> None:
    """MX-3."""
    other = device.make.organization()
    answer = device.ask(path=f"/organizations/{other.slug}/oauth/device_authorization")
    assert (answer.status_code, answer.get_json()["error"]) == (401, "invalid_client")


def test_parameters_are_accepted_only_in_the_body(device: Device) -> None:
    """ST-2."""
    answer = device.ask(path="/oauth/device_authorization?scope=openid")
    assert (answer.status_code, answer.get_json()["error"]) == (400, "invalid_request")


def test_open_codes_per_client_are_limited(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Codes that were used or refused are pending no more."""
    monkeypatch.setattr(device_codes, "MAX_PENDING_PER_NETWORK", 3)
    device.sign_in()
    used, refused = device.code(), device.code()
    device.allow(used["user_code"])
    device.poll(used["device_code"])
    device.press(device.enter(refused["user_code"]), "device-stop")
    assert device.poll(used["device_code"]).get_json()["error"] == "invalid_grant"
    assert device.poll(refused["device_code"]).get_json()["error"] == "access_denied"
    for _ in range(3):
        device.code()
    answer = device.ask()
    assert answer.status_code == 429 and int(answer.headers["Retry-After"]) > 0
    with device.make.app.app_context():
        ended = clock.now() - timedelta(seconds=1)
    device.change(expires_at=ended)
    assert device.ask().status_code == 200


def test_organization_can_forbid_the_grant_type(http: FlaskClient, make: Factory) -> None:
    device = Device(http, make, make.user(make.organization()))

    @transaction
    def forbid() -> None:
        db.session.execute(
            update(Organization)
            .where(Organization.id == device.organization.id)
            .values(settings={"oauth": {"grant_types": ["refresh_token"]}}, version=Organization.version + 1)
        )

    with make.app.app_context():
        forbid()
    assert device.ask().get_json()["error"] == "unauthorized_client"
    assert device.poll("x").get_json()["error"] == "unauthorized_client"
    path = f"/organizations/{device.organization.slug}/.well-known/openid-configuration"
    assert "device_authorization_endpoint" not in http.get(path).get_json()


def test_confidential_device_must_authenticate(device: Device) -> None:
    client = device.register(token_endpoint_auth_method="client_secret_basic")
    unproven = device.ask(client_id=client.client_id)
    assert unproven.get_json()["error"] == "invalid_client"
    answer = device.http.post("/oauth/device_authorization", data={"scope": "openid"}, headers=client.basic)
    code = answer.get_json()["device_code"]
    polled = device.http.post(
        "/oauth/token", data={"grant_type": GRANT, "device_code": code}, headers=client.basic
    )
    assert polled.get_json()["error"] == "authorization_pending"


def test_discovery_lists_the_endpoint(device: Device) -> None:
    document = device.http.get(
        f"/organizations/{device.organization.slug}/.well-known/openid-configuration"
    ).get_json()
    assert document["device_authorization_endpoint"] == f"{document['issuer']}/oauth/device_authorization"
    assert GRANT in document["grant_types_supported"]


def test_device_request_without_scope_gets_all_scopes_of_the_client(
    device: Device, database: Database
) -> None:
    """RFC 8628 section 3.1, RFC 6749 section 3.3."""
    assert device.ask(scope=None).status_code == 200
    [(scope,)] = database.query("SELECT scope FROM device_codes")
    assert scope.split() == list(device.client.registered.client.scopes)
