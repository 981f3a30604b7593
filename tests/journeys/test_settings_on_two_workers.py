"""Every setting applies at once on every worker: changed on one of two, then checked on both.

``EFFECTS`` lists for each path the request and the expected result per value. Settings about users and
settings that need time are in separate files. The server is never restarted.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from app.rules.organizations.settings_table import SETTINGS
from tests.factories import Factory
from tests.journeys import effects_in_time, effects_on_users
from tests.support.databases import MariaDBDatabase
from tests.support.form_browser import Page
from tests.support.mail_server import SENDER, Mailbox, mail_server
from tests.support.mariadb import MariaDB
from tests.support.organization_probe import CALLBACK, OrganizationProbe, numbers
from tests.support.pictures import PNG
from tests.support.servers import WORKERS, LiveServer

OTHER = "https://meadow.example/callback"
OTHER_ORIGIN = "https://meadow.example"


def _part(jwt: str, number: int) -> dict[str, Any]:
    part = jwt.split(".")[number]
    found: dict[str, Any] = json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return found


def _id_token_life(place: OrganizationProbe) -> Any:
    claims = _part(place.flow()["id_token"], 1)
    return claims["exp"] - claims["iat"]


def _defines_unstored_api(place: OrganizationProbe) -> Any:
    format_and_storage = {"access_token_format": "jwt", "access_token_storage": "none"}
    identifier = f"https://api{next(numbers)}.example"
    return place.manage(
        "POST", "/resources", {"identifier": identifier, "name": "API", **format_and_storage}
    )["status"]


def _device(place: OrganizationProbe, field: str) -> Any:
    form = {"client_id": place.device.client_id, "scope": "openid"}
    return place.ask("POST", "/oauth/device_authorization", data=form).json()[field]


def _rotates(place: OrganizationProbe) -> Any:
    token = place.flow()["refresh_token"]
    return place.refresh(token).json().get("refresh_token", token) != token


def _lost_answer(place: OrganizationProbe) -> Any:
    token = place.flow()["refresh_token"]
    place.refresh(token)
    return place.refresh(token).status_code


def _ledger(place: OrganizationProbe, field: str) -> Any:
    client = place.register()["data"]["client_id"]
    return place.manage("GET", f"/clients/{client}/credentials")["data"][0][field]


def _third_secret(place: OrganizationProbe) -> Any:
    client = place.register()["data"]["client_id"]
    for _ in range(2):
        last = place.manage("POST", f"/clients/{client}/credentials", {})
    return last["status"]


def _overlap(place: OrganizationProbe) -> Any:
    client = place.register()["data"]["client_id"]
    assert place.manage("POST", f"/clients/{client}/credentials/rotation", {})["status"] == 201
    ledger = place.manage("GET", f"/clients/{client}/credentials")["data"]
    ends = [datetime.fromisoformat(entry["expires_at"]) for entry in ledger if entry["expires_at"]]
    return {round((end - datetime.now(UTC)).total_seconds(), -2) for end in ends}


def _self_registered(place: OrganizationProbe) -> Any:
    body = {"redirect_uris": [CALLBACK], "token_endpoint_auth_method": "none"}
    return place.ask("POST", f"/organizations/{place.slug}/oauth/register", json=body).status_code == 201


def _reaches_limit(place: OrganizationProbe) -> Any:
    """Return whether some of more requests are refused than both workers together may answer."""
    return 429 in [place.token().status_code for _ in range(25)]


def _creates_two_users(place: OrganizationProbe) -> Any:
    bodies = [{"email": f"guest{next(numbers)}@example.com"} for _ in range(2)]
    return [place.manage("POST", "/users", body)["status"] for body in bodies][-1]


def _invitation_days(place: OrganizationProbe) -> Any:
    body = {"email": f"guest{next(numbers)}@example.com"}
    made = place.manage("POST", f"/organizations/{place.slug}/admins", body)["data"]
    ends, began = (datetime.fromisoformat(made[key]) for key in ("expires_at", "created_at"))
    return round((ends - began).total_seconds())


def _algorithm(place: OrganizationProbe) -> Any:
    return _part(place.token().json()["access_token"], 0)["alg"]


def _login(needle: str) -> Callable[[OrganizationProbe], Any]:
    return lambda place: needle in place.page("/login")


def _account(page: str, needle: str) -> Callable[[OrganizationProbe], Any]:
    return lambda place: needle in place.page(f"/account/{page}", signed_in=True)


def _consent(needle: str, client: str = "web") -> Callable[[OrganizationProbe], Any]:
    """Return whether the consent page shows it."""

    return lambda place: needle in _follow(place, place.authorize(getattr(place, client)))[0].text


def _follow(place: OrganizationProbe, answer: Any) -> tuple[Any, dict[str, str]]:
    """Follow the redirects to a page. Return it with the browser's cookies."""
    cookies = place.cookie | answer.cookies.get_dict()
    while answer.status_code == 303:
        path = answer.headers["Location"].removeprefix(place.server.url)
        answer = place.ask("GET", path, cookies=cookies)
        cookies |= answer.cookies.get_dict()
    return answer, cookies


def _remembers_self_registered(place: OrganizationProbe) -> Any:
    """Return whether a client that registered itself, and that the user allowed, gets a code at once."""
    if "itself" not in place.notes:
        path = f"/organizations/{place.slug}/oauth/register"
        body = {"redirect_uris": [CALLBACK], "grant_types": ["authorization_code", "refresh_token"]}
        itself = place.notes["itself"] = place.ask("POST", path, json=body).json()["client_id"]
        page, cookies = _follow(place, place.authorize(client_id=itself))
        form = Page("", 200, page.text).form_with("consent-allow")
        sent = [*form.values, form.buttons["consent-allow"]]
        assert place.ask("POST", form.action, data=sent, cookies=cookies).status_code == 303
    return "code=" in place.authorize(client_id=place.notes["itself"]).headers["Location"]


def _second_registration(place: OrganizationProbe) -> Any:
    return [_self_registered(place) for _ in range(2)][-1]


def _has_logo(place: OrganizationProbe) -> Any:
    return 'id="brand-logo"' in place.page("/login")


def _registers(**fields: Any) -> Callable[[OrganizationProbe], Any]:
    return lambda place: place.register(**fields)["status"]


Effect = tuple[Callable[[OrganizationProbe], Any], list[tuple[Any, Any]], dict[str, Any]]
DAY = 86_400
ALWAYS = {"oauth.consent.policy": "always"}
SELF_REGISTRATION = {"oauth.dynamic_registration.mode": "open", "oauth.signing.algorithm": "ES256"}
# RSA keys are slow to generate for each organization.
JWT = {"oauth.access_token.format": "jwt", "oauth.signing.algorithm": "ES256"}
CLIENT = "oauth.clients."
GRANTS = SETTINGS["oauth.grant_types"].default
METHODS = SETTINGS[f"{CLIENT}token_endpoint_auth_methods"].default
# path: (request, [(value, expected result)], other settings that must be set)
EFFECTS: dict[str, Effect] = effects_on_users.EFFECTS | effects_in_time.EFFECTS | {
    "authentication.password.min_length": (_account("password", "at least 17 "), [(17, True), (18, False)], {}),
    "authentication.registration.mode": (
        lambda place: place.ask("GET", f"/organizations/{place.slug}/register").status_code == 200,
        [("open", True), ("invite", False)],
        {},
    ),
    "authentication.registration.invitation_ttl_seconds": (_invitation_days, [(7200, 7200), (3600, 3600)], {}),
    "oauth.grant_types": (
        lambda place: place.token().status_code,
        [([name for name in GRANTS if name != "client_credentials"], 400), (GRANTS, 200)],
        {},
    ),
    "oauth.access_token.format": (
        lambda place: place.token().json()["access_token"].count("."),
        [("jwt", 2), ("opaque", 0)],
        {"oauth.signing.algorithm": "ES256"},
    ),
    "oauth.access_token.ttl_seconds": (lambda place: place.token().json()["expires_in"], [(120, 120), (90, 90)], {}),
    "oauth.access_token.jwt_ttl_seconds": (
        lambda place: place.token().json()["expires_in"], [(120, 120), (90, 90)], JWT,
    ),
    "oauth.access_token.allow_unstored": (_defines_unstored_api, [(True, 201), (False, 400)], {}),
    "oauth.id_token_ttl_seconds": (_id_token_life, [(120, 120), (90, 90)], {}),
    "oauth.device_code_ttl_seconds": (lambda place: _device(place, "expires_in"), [(120, 120), (90, 90)], {}),
    "oauth.device_poll_interval_seconds": (lambda place: _device(place, "interval"), [(7, 7), (9, 9)], {}),
    "oauth.refresh_token.rotation": (_rotates, [("public_clients", False), ("always", True)], {}),
    "oauth.refresh_token.reuse_grace_seconds": (_lost_answer, [(0, 400), (30, 200)], {}),
    "oauth.consent.policy": (
        lambda place: "code=" in place.authorize().headers.get("Location", ""),
        [("always", False), ("third_party", True)],
        {},
    ),
    "oauth.consent.ttl_seconds": (_consent("5 days"), [(5 * DAY, True), (None, False)], ALWAYS),
    "oauth.consent.members_may_allow": (
        _consent('id="consent-allow"', "stranger"), [("none", False), ("all", True)], {},
    ),
    "oauth.consent.remember_self_registered": (
        _remembers_self_registered, [(True, True), (False, False)], SELF_REGISTRATION,
    ),
    "oauth.redirect_uris.allowed_hosts": (
        _registers(redirect_uris=[OTHER]), [(["orchard.example"], 400), ([], 201)], {},
    ),
    "management_api.allowed_origins": (
        lambda place: place.ask("GET", "/clients", headers=place.headers | {"Origin": OTHER_ORIGIN}).status_code,
        [([OTHER_ORIGIN], 200), ([], 403)],
        {},
    ),
    "oauth.redirect_uris.max_per_client": (_registers(redirect_uris=[CALLBACK, OTHER]), [(1, 400), (2, 201)], {}),
    f"{CLIENT}secret_display": (lambda place: _ledger(place, "revealable"), [("once", False), ("reveal", True)], {}),
    f"{CLIENT}max_secrets": (_third_secret, [(2, 409), (3, 201)], {}),
    f"{CLIENT}secret_ttl_seconds": (
        lambda place: _ledger(place, "expires_at") is None, [(86_400, False), (None, True)], {},
    ),
    f"{CLIENT}token_endpoint_auth_methods": (
        _registers(token_endpoint_auth_method="client_secret_post"),
        [(["private_key_jwt", "none"], 400), (METHODS, 201)],
        {},
    ),
    f"{CLIENT}rotation_overlap_seconds": (_overlap, [(7200, {7200}), (3600, {3600})], {}),
    "oauth.dynamic_registration.mode": (_self_registered, [("open", True), ("off", False)], {}),
    "oauth.dynamic_registration.client_id_metadata_documents": (
        lambda place: bool(place.discovery().get("client_id_metadata_document_supported")),
        [(True, True), (False, False)],
        {},
    ),
    "oauth.dynamic_registration.max_per_hour": (
        _second_registration, [(1, False), (10_000, True)], SELF_REGISTRATION,
    ),
    "oauth.pkce": (
        lambda place: "code=" in place.authorize(without_pkce=True).headers.get("Location", ""),
        [("public_clients", True), ("required", False)],
        {},
    ),
    "oauth.require_par": (
        lambda place: "code=" in place.authorize().headers.get("Location", ""), [(True, False), (False, True)], {},
    ),
    "oauth.require_dpop": (lambda place: place.token().status_code, [(True, 400), (False, 200)], {}),
    "oauth.signing.algorithm": (_algorithm, [("EdDSA", "EdDSA"), ("ES256", "ES256")], JWT),
    "user_permissions.members_can_register_clients": (
        lambda place: place.ask("GET", f"/portal/{place.slug}/clients", cookies=place.cookie).status_code,
        [(True, 200), (False, 403)],
        {},
    ),
    "user_permissions.members_can_edit_profile": (
        _account("profile", 'id="profile-save"'), [(False, False), (True, True)], {},
    ),
    "user_permissions.members_can_delete_account": (
        _account("profile", "/account/delete"), [(True, True), (False, False)], {},
    ),
    "user_profile.attributes": (
        _account("profile", "Favorite tool"),
        [([{"key": "tool", "name": "Favorite tool", "type": "string", "editable_by": "user"}], True), ([], False)],
        {},
    ),
    "branding.display_name": (_login("Orchard Works"), [("Orchard Works", True), ("Meadow", False)], {}),
    "branding.logo": (_has_logo, [(PNG, True), (None, False)], {}),
    "branding.accent_color": (_login("a1b2c3"), [("#a1b2c3", True), ("#102030", False)], {}),
    "branding.theme": (_login('data-theme="dark"'), [("dark", True), ("light", False)], {}),
    "branding.support_email": (
        _login("mailto:help@orchard.example"), [("help@orchard.example", True), (None, False)], {},
    ),
    "branding.support_uri": (
        _login("https://help.orchard.example"), [("https://help.orchard.example", True), (None, False)], {},
    ),
    "branding.login_message": (_login("Mind the ladders"), [("Mind the ladders", True), (None, False)], {}),
    "limits.client_requests_per_minute": (_reaches_limit, [(10, True), (None, False)], {}),
    "limits.network_requests_per_minute": (_reaches_limit, [(10, True), (None, False)], {}),
    "limits.organization_requests_per_minute": (_reaches_limit, [(10, True), (None, False)], {}),
    "limits.max_users": (_creates_two_users, [(1, 409), (None, 201)], {}),
    "limits.max_clients": (_registers(), [(1, 409), (None, 201)], {}),
    "localization.default_locale": (_login('<html lang="de"'), [("de", True), ("en", False)], {}),
}  # fmt: skip


@pytest.fixture(scope="module")
def box() -> Iterator[Mailbox]:
    with mail_server() as made:
        yield made


@pytest.fixture(scope="module")
def server(
    mariadb: MariaDB, instance: Path, scratch: Path, worker: str, box: Mailbox
) -> Iterator[LiveServer]:
    """Two workers that can send email, with a host name that allows passkeys."""
    mail = {"GATEHOUSE_SMTP_URL": f"smtp://localhost:{box.port}", "GATEHOUSE_MAIL_FROM": SENDER}
    database = MariaDBDatabase(mariadb, f"settings_{worker}")
    made = LiveServer(database, instance, scratch / "settings.log", settings=mail, host="localhost")
    made.start()
    Factory(made.app).root()
    yield made
    made.stop()


def test_every_setting_is_covered() -> None:
    assert set(EFFECTS) == set(SETTINGS)


@pytest.mark.parametrize("path", EFFECTS)
def test_setting_change_applies_at_once_on_both_workers(server: LiveServer, box: Mailbox, path: str) -> None:
    probe, values, beside = EFFECTS[path]
    with OrganizationProbe(server, Factory(server.app), box) as place:
        for value, expected in values:
            place.change(path, value, beside)
            asked: set[str] = set()
            while len(asked) < WORKERS:
                place.leave(*asked)
                found = probe(place)
                asked.add(place.worker)
                assert found == expected, (path, value, found)
