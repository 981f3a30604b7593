"""Dynamic registration limits: who may register clients, and how many (DC-1)."""

from __future__ import annotations

import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import select

from app.extensions import db
from app.models.audit import AuditEvent
from app.models.client import Client, ClientRegistration, RegistrationToken
from app.operations.clients import clients
from app.operations.clients.initial_access_tokens import create_registration_token, revoke_registration_token
from app.operations.directory.lookups import OrganizationSnapshot
from tests.factories import Factory
from tests.support.registering import GOOD, own, register


def everything_stored(app: Flask) -> str:
    with app.app_context():
        tables = [db.session.execute(select(model.__table__)).all() for model in _STORED]
    return repr(tables)


_STORED = (Client, ClientRegistration, RegistrationToken, AuditEvent)


def test_initial_access_token_is_required_if_configured(
    app: Flask, http: FlaskClient, by_token: OrganizationSnapshot, make: Factory
) -> None:
    """DC-1."""
    other = make.organization()
    with app.app_context():
        made = create_registration_token(make.actor(by_token), {"name": "CI", "max_uses": 2})
        foreign = create_registration_token(make.actor(other), {"name": "CI"})
    without = register(http, by_token)
    assert without.status_code == 401 and without.headers["WWW-Authenticate"] == 'Bearer realm="gatehouse"'
    wrong = register(http, by_token, foreign.token)
    assert wrong.status_code == 401 and 'error="invalid_token"' in wrong.headers["WWW-Authenticate"]
    assert [register(http, by_token, made.token).status_code for _ in range(3)] == [201, 201, 401]


def test_rejected_registration_does_not_use_up_the_token(
    app: Flask, http: FlaskClient, by_token: OrganizationSnapshot, make: Factory
) -> None:
    with app.app_context():
        made = create_registration_token(make.actor(by_token), {"name": "CI", "max_uses": 1})
    assert register(http, by_token, made.token, redirect_uris=["nowhere"]).status_code == 400
    assert register(http, by_token, made.token).status_code == 201


def test_revoked_initial_access_token_is_rejected(
    app: Flask, http: FlaskClient, by_token: OrganizationSnapshot, make: Factory
) -> None:
    with app.app_context():
        made = create_registration_token(make.actor(by_token), {"name": "CI"})
        assert register(http, by_token, made.token).status_code == 201
        revoke_registration_token(make.actor(by_token), made.record.public_id)
    assert register(http, by_token, made.token).status_code == 401


def test_registration_tokens_are_stored_only_as_digests(
    app: Flask, http: FlaskClient, by_token: OrganizationSnapshot, make: Factory
) -> None:
    """CD-1 requires the same for codes."""
    with app.app_context():
        made = create_registration_token(make.actor(by_token), {"name": "CI"})
    told = register(http, by_token, made.token).get_json()
    stored = everything_stored(app)
    assert made.token not in stored
    assert told["registration_access_token"] not in stored and told["client_secret"] not in stored


def test_registrations_are_limited_per_network(http: FlaskClient, make: Factory) -> None:
    """DC-1: where no token is required, as many as the organization allows."""
    rules = {"mode": "open", "max_per_hour": 2}
    organization = make.organization(settings={"oauth": {"dynamic_registration": rules}})
    answers = [register(http, organization) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [201, 201, 429]
    assert int(answers[2].headers["Retry-After"]) > 0


def test_clients_are_limited_per_organization(
    http: FlaskClient, open_to_all: OrganizationSnapshot, make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DC-1: a quota that also covers clients made by administrators."""
    monkeypatch.setattr(clients, "MAX_SELF_REGISTERED_CLIENTS", 1)
    assert register(http, open_to_all).status_code == 201
    full = register(http, open_to_all)
    assert full.status_code == 409 and full.get_json()["error"] == "too_many_clients"
    make.client(open_to_all)
    monkeypatch.setattr(clients, "MAX_CLIENTS", 2)
    with pytest.raises(clients.TooManyClients):
        make.client(open_to_all)


def test_size_of_a_registration_is_limited(http: FlaskClient, open_to_all: OrganizationSnapshot) -> None:
    """DC-1, RFC 7591 section 3.2.2: known and ignored fields, at registration and at every change."""
    told = register(http, open_to_all, ignored="x" * 15_000).get_json()
    for more in ({"ignored": "x" * 16_384}, {"jwks": {"keys": [{"kty": "EC", "more": "x" * 16_384}]}}):
        answers = (
            register(http, open_to_all, **more),
            own(http, told, "PUT", **GOOD, client_id=told["client_id"], **more),
        )
        for answer in answers:
            assert answer.status_code == 400 and "16 KiB" in answer.get_json()["error_description"]
            assert answer.get_json()["error"] == "invalid_client_metadata"
