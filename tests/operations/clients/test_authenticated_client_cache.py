"""Cached client authentication: found by the digest of the credentials, removed by any change."""

from __future__ import annotations

from datetime import timedelta

import pytest
from flask import Flask
from flask.testing import FlaskClient

from app.operations.clients import client_authentication
from app.operations.clients.clients import update_client
from app.operations.clients.credential_revocation import revoke_credentials
from app.operations.clients.credentials import create_credential
from app.operations.store import clock
from tests.factories import Factory, MadeClient, basic_header

TOKEN = "/oauth/token"
FORM = {"grant_type": "client_credentials"}


@pytest.fixture
def machine(make: Factory) -> MadeClient:
    client_authentication._clients_by_header.clear()
    return make.machine(make.organization(), "clients:read")


def is_judged(http: FlaskClient, machine: MadeClient, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Return whether the next request verifies the secret instead of using the cache."""
    judged: list[object] = []
    real = client_authentication.authenticate_client

    def noted(*arguments: object, **more: object) -> object:
        judged.append(arguments)
        return real(*arguments, **more)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(client_authentication, "authenticate_client", noted)
        assert http.post(TOKEN, data=FORM, headers=machine.basic).status_code == 200
    return bool(judged)


def test_repeated_credentials_are_verified_once(
    http: FlaskClient, machine: MadeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_judged(http, machine, monkeypatch)
    assert not is_judged(http, machine, monkeypatch)


def test_credentials_are_not_cached_in_clear(http: FlaskClient, machine: MadeClient) -> None:
    """P1: a dump of the process's memory contains only digests."""
    http.post(TOKEN, data=FORM, headers=machine.basic)
    assert all(isinstance(key, bytes) and len(key) == 32 for key in client_authentication._clients_by_header)
    assert machine.secret not in repr(client_authentication._clients_by_header)


def test_any_change_causes_a_new_verification(
    app: Flask, http: FlaskClient, make: Factory, machine: MadeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_judged(http, machine, monkeypatch)
    with app.app_context():
        update_client(make.system(machine.organization), machine.client_id, {"name": "Reaper"})
    assert is_judged(http, machine, monkeypatch)


def test_revoked_secret_is_rejected(
    app: Flask, http: FlaskClient, make: Factory, machine: MadeClient
) -> None:
    assert http.post(TOKEN, data=FORM, headers=machine.basic).status_code == 200
    with app.app_context():
        revoke_credentials(make.system(machine.organization), machine.client_id)
    assert http.post(TOKEN, data=FORM, headers=machine.basic).status_code == 401


def test_expired_secret_is_rejected_without_a_change(
    app: Flask, http: FlaskClient, make: Factory, machine: MadeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with app.app_context():
        soon = clock.now() + timedelta(hours=1)
        made = create_credential(make.system(machine.organization), machine.client_id, {"expires_at": soon})
    header = basic_header(machine.client_id, made.secret)
    assert http.post(TOKEN, data=FORM, headers=header).status_code == 200
    real = clock.now
    monkeypatch.setattr(clock, "now", lambda: real() + timedelta(hours=2))
    assert http.post(TOKEN, data=FORM, headers=header).status_code == 401


def test_cached_client_is_unknown_at_another_organization(
    http: FlaskClient, make: Factory, machine: MadeClient
) -> None:
    """MX-3"""
    other = make.organization()
    assert http.post(TOKEN, data=FORM, headers=machine.basic).status_code == 200
    answer = http.post(f"/organizations/{other.slug}{TOKEN}", data=FORM, headers=machine.basic)
    assert answer.status_code == 401


@pytest.mark.parametrize("name", ["client_id", "client_secret"])
def test_other_parameters_are_validated_despite_the_cache(
    http: FlaskClient, machine: MadeClient, name: str
) -> None:
    """CA-1: a cached header does not hide a second authentication method."""
    assert http.post(TOKEN, data=FORM, headers=machine.basic).status_code == 200
    assert http.post(TOKEN, data=FORM | {name: "another"}, headers=machine.basic).status_code == 400
