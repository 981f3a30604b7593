"""Settings: the effective document, its metadata, dry runs, versions, immediate effect."""

from __future__ import annotations

import pytest
from flask.testing import FlaskClient

from app.rules.organizations.settings import default_settings
from tests.factories import Factory, bearer_header


def test_settings_are_read_updated_and_reset(http: FlaskClient, make: Factory) -> None:
    acme = make.organization()
    headers, path = bearer_header(make.bearer(acme)), f"/organizations/{acme.slug}/settings"
    read = http.get(path, headers=headers).get_json()
    assert read["data"] == default_settings()
    assert read["meta"]["overridden"] == [] and read["meta"]["version"] == 1
    assert read["meta"]["limits"]["authentication.password.min_length"] == {"min": 8, "max": 128}
    changed = http.put(path, json={"authentication": {"password": {"min_length": 15}}}, headers=headers)
    body = changed.get_json()
    assert body["data"]["authentication"]["password"]["min_length"] == 15
    assert body["meta"]["changed"] == body["meta"]["overridden"] == ["authentication.password.min_length"]
    assert (body["meta"]["version"], body["meta"]["updated_by"]) == (2, "Harvester")
    back = http.put(
        path, json={"authentication": {"password": {"min_length": None}}}, headers=headers
    ).get_json()
    assert back["data"] == default_settings() and back["meta"]["overridden"] == []


def test_complete_document_can_be_sent_back(http: FlaskClient, make: Factory) -> None:
    acme = make.organization(settings={"branding": {"theme": "dark"}})
    headers, path = bearer_header(make.bearer(acme)), f"/organizations/{acme.slug}/settings"
    document = http.get(path, headers=headers).get_json()["data"]
    answer = http.put(path, json=document, headers=headers).get_json()
    assert answer["meta"]["changed"] == [] and answer["meta"]["overridden"] == ["branding.theme"]


def test_dry_run_reports_impact_and_stores_nothing(http: FlaskClient, make: Factory) -> None:
    acme = make.organization()
    make.client(acme)
    headers, path = bearer_header(make.bearer(acme)), f"/organizations/{acme.slug}/settings"
    body = {"oauth": {"redirect_uris": {"allowed_hosts": ["acme.example"]}}}
    ran = http.put(f"{path}?dry_run=true", json=body, headers=headers).get_json()
    assert ran["meta"]["impact"] == {
        "users_without_second_factor": 0,
        "sessions_terminated": 0,
        "clients_affected": 1,
        "secrets_deleted": 0,
    }
    assert ran["meta"]["changed"] == ["oauth.redirect_uris.allowed_hosts"]
    assert http.get(path, headers=headers).get_json()["data"] == default_settings()


def test_effective_setting_causes_no_warning(http: FlaskClient, make: Factory) -> None:
    acme = make.organization()
    headers, path = bearer_header(make.bearer(acme)), f"/organizations/{acme.slug}/settings"
    body = {"localization": {"default_locale": "de"}, "branding": {"theme": "dark"}}
    changed = http.put(path, json=body, headers=headers).get_json()
    assert "warnings" not in changed["meta"]
    assert changed["data"]["localization"] == {"default_locale": "de"}


def test_unknown_locale_is_rejected(http: FlaskClient, make: Factory) -> None:
    acme = make.organization()
    headers, path = bearer_header(make.bearer(acme)), f"/organizations/{acme.slug}/settings"
    refused = http.put(path, json={"localization": {"default_locale": "pt-BR"}}, headers=headers)
    assert refused.status_code == 400
    assert refused.get_json()["errors"][0]["message"] == "This must be one of: en, de."


def test_stale_version_is_412_and_lock_out_is_409(http: FlaskClient, make: Factory) -> None:
    acme = make.organization()
    headers, path = bearer_header(make.bearer(acme)), f"/organizations/{acme.slug}/settings"
    tag = http.get(path, headers=headers).headers["ETag"]
    body = {"branding": {"theme": "dark"}}
    assert http.put(path, json=body, headers={**headers, "If-Match": tag}).status_code == 200
    assert http.put(path, json=body, headers={**headers, "If-Match": tag}).status_code == 412
    locked_out = {"authentication": {"password": {"enabled": False}, "passkeys": {"enabled": False}}}
    refused = http.put(path, json=locked_out, headers=headers)
    assert (refused.status_code, refused.get_json()["error"]) == (409, "would_lock_out")
    assert refused.get_json()["errors"][0]["field"] == "authentication.password.enabled"


def test_invalid_fields_are_named_with_suggestions(http: FlaskClient, make: Factory) -> None:
    acme = make.organization()
    body = {"oauth": {"acces_token": {}, "require_par": "no"}, "branding": {"accent_color": "blue"}}
    answer = http.put(
        f"/organizations/{acme.slug}/settings", json=body, headers=bearer_header(make.bearer(acme))
    )
    errors = {error["field"]: error["message"] for error in answer.get_json()["errors"]}
    assert answer.status_code == 400
    assert set(errors) == {"oauth.acces_token", "oauth.require_par", "branding.accent_color"}
    assert 'Did you mean "access_token"?' in errors["oauth.acces_token"]


@pytest.mark.parametrize("ttl", [60, 900])
def test_token_lifetime_setting_applies_immediately(http: FlaskClient, make: Factory, ttl: int) -> None:
    acme = make.organization()
    machine = make.machine(acme)
    headers = bearer_header(make.bearer(acme))
    body = {"oauth": {"access_token": {"ttl_seconds": ttl}}}
    assert http.put(f"/organizations/{acme.slug}/settings", json=body, headers=headers).status_code == 200
    answer = http.post("/oauth/token", data={"grant_type": "client_credentials"}, headers=machine.basic)
    assert answer.get_json()["expires_in"] == ttl


def test_disabled_grant_type_is_rejected_immediately(http: FlaskClient, make: Factory) -> None:
    acme = make.organization()
    machine = make.machine(acme)
    headers = bearer_header(make.bearer(acme))
    request = {"data": {"grant_type": "client_credentials"}, "headers": machine.basic}
    assert http.post("/oauth/token", **request).status_code == 200
    body = {"oauth": {"grant_types": ["authorization_code", "refresh_token"]}}
    assert http.put(f"/organizations/{acme.slug}/settings", json=body, headers=headers).status_code == 200
    refused = http.post("/oauth/token", **request)
    assert (refused.status_code, refused.get_json()["error"]) == (400, "unauthorized_client")


def test_secrets_cannot_be_viewed_after_switch_to_once(http: FlaskClient, make: Factory) -> None:
    acme = make.organization()
    client = make.client(acme)
    headers = bearer_header(make.bearer(acme))
    ledger = f"/clients/{client.client_id}/credentials"
    assert (
        http.get(f"{ledger}?reveal=true", headers=headers).get_json()["data"][0]["client_secret"]
        == client.secret
    )
    body = {"oauth": {"clients": {"secret_display": "once"}}}
    tried = http.put(
        f"/organizations/{acme.slug}/settings?dry_run=true", json=body, headers=headers
    ).get_json()
    assert tried["meta"]["impact"]["secrets_deleted"] == 2, "the machine's own beside the client's"
    assert http.put(f"/organizations/{acme.slug}/settings", json=body, headers=headers).status_code == 200
    answer = http.get(f"{ledger}?reveal=true", headers=headers).get_json()["data"][0]
    assert "client_secret" not in answer and answer["revealable"] is False
