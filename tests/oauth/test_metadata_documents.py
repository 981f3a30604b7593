"""Clients whose client_id is the URL of their metadata document: DC-3 and DC-4."""

from __future__ import annotations

import json
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import select

from app.extensions import db
from app.models.client import Client
from app.operations.clients import resources
from app.operations.directory.lookups import OrganizationSnapshot
from tests.factories import Factory
from tests.oauth.conftest import VERIFIER
from tests.support.cases import each
from tests.support.publisher import (
    ON,
    WEB,
    Publisher,
    allowed_code,
    authorize,
    is_known,
    row,
)

pytestmark = pytest.mark.either


@pytest.fixture
def organization(make: Factory) -> OrganizationSnapshot:
    """An organization that accepts URLs as client ids."""
    return make.organization(settings=ON)


def test_urls_are_not_client_ids_by_default(http: FlaskClient, make: Factory, publisher: Publisher) -> None:
    organization = make.organization()
    assert not is_known(authorize(http, organization, publisher.client_id))
    assert publisher.times_read == 0
    path = f"/organizations/{organization.slug}/.well-known/oauth-authorization-server"
    assert "client_id_metadata_document_supported" not in http.get(path).get_json()


def test_client_is_created_from_its_document(
    app: Flask, http: FlaskClient, organization: OrganizationSnapshot, publisher: Publisher
) -> None:
    """DC-3: the document is fetched once and creates an unreviewed client."""
    path = f"/organizations/{organization.slug}/.well-known/oauth-authorization-server"
    assert http.get(path).get_json()["client_id_metadata_document_supported"] is True
    assert is_known(authorize(http, organization, publisher.client_id))
    assert is_known(authorize(http, organization, publisher.client_id))
    assert publisher.times_read == 1
    kept = row(app)
    assert (kept.name, kept.trust, kept.metadata_document_uri) == (
        "Field Notes",
        "unverified",
        publisher.client_id,
    )
    assert kept.created_by == f"localhost:{publisher.server.port}"
    assert kept.document["token_endpoint_auth_method"] == "none"


def test_flow_uses_the_url_as_client_id(
    app: Flask, http: FlaskClient, organization: OrganizationSnapshot, publisher: Publisher, make: Factory
) -> None:
    api = "https://notes.example/api"
    with app.app_context():
        fields = {"identifier": api, "name": "Notes", "scopes": [{"name": "notes:read"}]}
        resources.define_resource(make.actor(organization), fields)
    publisher.document["grant_types"] = ["authorization_code", "refresh_token"]
    scope = "openid offline_access notes:read"
    code = allowed_code(http, make, organization, publisher.client_id, scope=scope, resource=api)
    base = f"/organizations/{organization.slug}/oauth"
    answer = http.post(
        f"{base}/token",
        data={
            "grant_type": "authorization_code",
            "client_id": publisher.client_id,
            "code": code,
            "redirect_uri": WEB,
            "code_verifier": VERIFIER,
        },
    )
    assert answer.status_code == 200, answer.text
    tokens = answer.get_json()
    checker = make.client(organization, resources=[api])
    told = http.post(
        f"{base}/introspect", data={"token": tokens["access_token"]}, headers=checker.basic
    ).get_json()
    assert told["client_id"] == publisher.client_id and api in told["aud"]
    refreshed = http.post(
        f"{base}/token",
        data={
            "grant_type": "refresh_token",
            "client_id": publisher.client_id,
            "refresh_token": tokens["refresh_token"],
        },
    )
    assert refreshed.status_code == 200, refreshed.text
    claims = json.loads(_payload(tokens["id_token"]))
    assert claims["aud"] == publisher.client_id
    gone = http.post(
        f"{base}/revoke",
        data={"client_id": publisher.client_id, "token": refreshed.get_json()["access_token"]},
    )
    assert gone.status_code == 200, gone.text


def test_jwt_of_a_document_client_is_recognized(
    http: FlaskClient, make: Factory, publisher: Publisher
) -> None:
    organization = make.organization(settings={"oauth": ON["oauth"] | {"access_token": {"format": "jwt"}}})
    code = allowed_code(http, make, organization, publisher.client_id)
    base = f"/organizations/{organization.slug}/oauth"
    token = http.post(
        f"{base}/token",
        data={
            "grant_type": "authorization_code",
            "client_id": publisher.client_id,
            "code": code,
            "redirect_uri": WEB,
            "code_verifier": VERIFIER,
        },
    ).get_json()["access_token"]
    assert json.loads(_payload(token))["client_id"] == publisher.client_id
    told = http.get(f"{base}/userinfo", headers={"Authorization": f"Bearer {token}"})
    assert told.status_code == 200, told.text


@pytest.mark.parametrize(
    "document",
    [
        {"client_id": "https://other.example/client.json"},
        {"client_id": None},
        {"client_secret": "s"},
        {"client_secret_expires_at": 0},
        {"token_endpoint_auth_method": "client_secret_basic"},
        {"token_endpoint_auth_method": "private_key_jwt"},
        {"redirect_uris": ["http://tool.example/callback"]},
        {"redirect_uris": ["javascript:alert(1)"]},
        {"redirect_uris": None},
        {"client_name": "A\u202ecme"},
        {"grant_types": ["client_credentials"]},
        {"logo_uri": "http://10.0.0.1/"},
    ],
)
def test_invalid_document_is_rejected(
    app: Flask,
    http: FlaskClient,
    organization: OrganizationSnapshot,
    publisher: Publisher,
    document: dict[str, Any],
) -> None:
    """DC-3: client_id must equal the URL, no secret is allowed, and RU-3 applies to redirect URIs."""
    publisher.document |= document
    assert not is_known(authorize(http, organization, publisher.client_id))
    with app.app_context():
        assert db.session.scalars(select(Client).where(Client.source != "person")).all() == []


@pytest.mark.parametrize(
    ("status", "kind", "raw"),
    [
        (404, "application/json", b"{}"),
        (301, "application/json", b"{}"),
        (500, "application/json", b"{}"),
        (200, "text/html", b""),
        (200, "application/json", b"no json"),
        (200, "application/json", b"[]"),
        (200, "application/json", b" " * 6000),
    ],
)
def test_response_that_is_not_a_document_is_rejected(
    http: FlaskClient,
    organization: OrganizationSnapshot,
    publisher: Publisher,
    status: int,
    kind: str,
    raw: bytes,
) -> None:
    publisher.status, publisher.headers, publisher.raw = status, {"Content-Type": kind, "Location": "/x"}, raw
    assert not is_known(authorize(http, organization, publisher.client_id))


@each(
    "address",
    [
        "https://{host}",
        "https://{host}/",
        "http://{host}/c.json",
        "https://user@{host}/c.json",
        "https://{host}/a/../c.json",
        "https://{host}/%2e%2e/c.json",
        "https://{host}/c.json#x",
        "https://{host}/c json",
        "https://{host}/c\\json",
        "HTTPS://{host}/c.json",
        "https://127.0.0.1:1/c.json",
        "https://10.0.0.1/c.json",
        "https://[::1]/c.json",
        "https://metadata.google.internal/c.json",
        "https://{host}/" + "c" * 600,
    ],
)
def test_forbidden_url_is_never_fetched(
    http: FlaskClient, organization: OrganizationSnapshot, publisher: Publisher, address: str
) -> None:
    """DC-3: https with a path; SF-2 decides about the rest."""
    client_id = address.format(host=f"localhost:{publisher.server.port}")
    assert not is_known(authorize(http, organization, client_id))
    assert publisher.times_read == 0


def _payload(jwt: str) -> bytes:
    from base64 import urlsafe_b64decode

    body = jwt.split(".")[1]
    return urlsafe_b64decode(body + "=" * (-len(body) % 4))
