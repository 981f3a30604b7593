"""Clients that proved themselves a moment ago: remembered by the digest of their words, forgotten with any change."""

from __future__ import annotations

from datetime import timedelta

import pytest
from flask import Flask
from flask.testing import FlaskClient

from app.operations.clients import client_authentication
from app.operations.clients import client_authentication as authenticated_client_cache
from app.operations.clients.clients import update_client
from app.operations.clients.credential_revocation import revoke_credentials
from app.operations.clients.credentials import create_credential
from app.operations.store import clock
from tests.factories import Factory, MadeClient, basic_header

TOKEN = "/oauth/token"
FORM = {"grant_type": "client_credentials"}


@pytest.fixture
def machine(make: Factory) -> MadeClient:
    authenticated_client_cache._clients_by_header.clear()
    return make.machine(make.organization(), "clients:read")


def is_judged(http: FlaskClient, machine: MadeClient, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the next request is judged by its secret, and not by what was remembered."""
    judged: list[object] = []
    real = client_authentication.authenticate_client

    def noted(*arguments: object, **more: object) -> object:
        judged.append(arguments)
        return real(*arguments, **more)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(client_authentication, "authenticate_client", noted)
        assert http.post(TOKEN, data=FORM, headers=machine.basic).status_code == 200
    return bool(judged)


def test_the_same_words_are_judged_once(
    http: FlaskClient, machine: MadeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_judged(http, machine, monkeypatch)
    assert not is_judged(http, machine, monkeypatch)


def test_the_words_themselves_are_not_kept(http: FlaskClient, machine: MadeClient) -> None:
    """P1: a dump of the memory's tables holds digests."""
    http.post(TOKEN, data=FORM, headers=machine.basic)
    assert all(
        isinstance(key, bytes) and len(key) == 32 for key in authenticated_client_cache._clients_by_header
    )
    assert machine.secret not in repr(authenticated_client_cache._clients_by_header)


def test_any_change_makes_them_judged_again(
    app: Flask, http: FlaskClient, make: Factory, machine: MadeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_judged(http, machine, monkeypatch)
    with app.app_context():
        update_client(make.system(machine.organization), machine.client_id, {"name": "Reaper"})
    assert is_judged(http, machine, monkeypatch)


def test_a_revoked_secret_proves_nothing_any_more(
    app: Flask, http: FlaskClient, make: Factory, machine: MadeClient
) -> None:
    assert http.post(TOKEN, data=FORM, headers=machine.basic).status_code == 200
    with app.app_context():
        revoke_credentials(make.system(machine.organization), machine.client_id)
    assert http.post(TOKEN, data=FORM, headers=machine.basic).status_code == 401


def test_an_expired_secret_proves_nothing_though_nothing_changed(
    app: Flask, http: FlaskClient, make: Factory, machine: MadeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with app.app_context():
        soon = clock.now() + timedelta(hours=1)
        made = create_credential(make.system(machine.organization), machine.client_id, expires_at=soon)
    header = basic_header(machine.client_id, made.secret)
    assert http.post(TOKEN, data=FORM, headers=header).status_code == 200
    real = clock.now
    monkeypatch.setattr(clock, "now", lambda: real() + timedelta(hours=2))
    assert http.post(TOKEN, data=FORM, headers=header).status_code == 401


def test_another_organizations_path_does_not_know_them(
    http: FlaskClient, make: Factory, machine: MadeClient
) -> None:
    """MX-3"""
    other = make.organization()
    assert http.post(TOKEN, data=FORM, headers=machine.basic).status_code == 200
    answer = http.post(f"/organizations/{other.slug}{TOKEN}", data=FORM, headers=machine.basic)
    assert answer.status_code == 401


@pytest.mark.parametrize("name", ["client_id", "client_secret"])
def test_what_stands_beside_the_header_is_judged_too(
    http: FlaskClient, machine: MadeClient, name: str
) -> None:
    """CA-1: a remembered header does not hide a second method."""
    assert http.post(TOKEN, data=FORM, headers=machine.basic).status_code == 200
    assert http.post(TOKEN, data=FORM | {name: "another"}, headers=machine.basic).status_code == 400
