"""Dynamic client registration: RFC 7591, DC-1 and DC-2."""

from __future__ import annotations

import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import select

from app.extensions import db
from app.models.audit import AuditEvent
from app.models.client import Client, ClientRegistration
from app.operations.directory.lookups import OrganizationSnapshot
from app.rules.directory.permissions import ALL_PERMISSIONS
from tests.factories import Factory
from tests.support.cases import each
from tests.support.registering import GOOD, register

pytestmark = pytest.mark.either


def test_registration_is_disabled_by_default(http: FlaskClient, make: Factory) -> None:
    """DC-1."""
    organization = make.organization()
    answer = register(http, organization)
    assert answer.status_code == 403 and answer.get_json()["error"] == "access_denied"
    metadata = http.get(f"/organizations/{organization.slug}/.well-known/openid-configuration").get_json()
    assert "registration_endpoint" not in metadata


def test_discovery_lists_the_open_registration_endpoint(
    http: FlaskClient, open_to_all: OrganizationSnapshot
) -> None:
    metadata = http.get(
        f"/organizations/{open_to_all.slug}/.well-known/oauth-authorization-server"
    ).get_json()
    assert metadata["registration_endpoint"] == f"{open_to_all.issuer}/oauth/register"


def test_registration_returns_the_registered_metadata(
    http: FlaskClient, open_to_all: OrganizationSnapshot
) -> None:
    answer = register(http, open_to_all)
    told = answer.get_json()
    assert answer.status_code == 201, answer.text
    assert answer.headers["Cache-Control"] == "no-store"
    assert told["client_id"].startswith(f"cli_{open_to_all.id}_")
    assert told["client_secret"].startswith("gth_cs_") and told["client_secret_expires_at"] == 0
    assert told["registration_access_token"].startswith("gth_ra_")
    assert told["registration_client_uri"] == f"{open_to_all.issuer}/oauth/register/{told['client_id']}"
    assert told["token_endpoint_auth_method"] == "client_secret_basic"
    assert told["client_name"] == "Weather Bot" and told["redirect_uris"] == GOOD["redirect_uris"]
    assert told["response_types"] == ["code"] and told["application_type"] == "web"
    assert told["client_id_issued_at"] > 1_700_000_000


def test_missing_scope_registers_all_identity_scopes(
    http: FlaskClient, open_to_all: OrganizationSnapshot
) -> None:
    told = register(http, open_to_all).get_json()
    assert set(told["scope"].split()) == {"openid", "profile", "email", "address", "phone", "offline_access"}


def test_client_without_refresh_grant_gets_no_offline_access(
    http: FlaskClient, open_to_all: OrganizationSnapshot
) -> None:
    told = register(http, open_to_all, grant_types=None).get_json()
    assert told["grant_types"] == ["authorization_code"] and "offline_access" not in told["scope"].split()


def test_registration_keeps_only_what_the_organization_offers(http: FlaskClient, make: Factory) -> None:
    """DC-2: scopes, grants and methods; never a management scope."""
    narrow = {
        "grant_types": ["authorization_code", "client_credentials"],
        "dynamic_registration": {"mode": "open"},
    }
    organization = make.organization(settings={"oauth": narrow})
    asked = {
        "scope": "openid email clients:write organizations:write made:up",
        "grant_types": ["authorization_code", "refresh_token", "client_credentials", "implicit", "password"],
        "response_types": ["code", "token", "id_token"],
    }
    told = register(http, organization, **asked).get_json()
    assert told["scope"] == "openid email"
    assert told["grant_types"] == ["authorization_code"]
    assert told["response_types"] == ["code"]


@each("scope", sorted(ALL_PERMISSIONS))
def test_management_scopes_are_never_registered(
    http: FlaskClient, open_to_all: OrganizationSnapshot, scope: str
) -> None:
    """DC-2: rejected when alone, dropped when requested with others."""
    assert register(http, open_to_all, scope=scope).get_json()["error"] == "invalid_client_metadata"
    assert register(http, open_to_all, scope=f"openid {scope}").get_json()["scope"] == "openid"


def test_registration_for_client_credentials_is_rejected(
    http: FlaskClient, open_to_all: OrganizationSnapshot
) -> None:
    """DC-2: client_credentials would give a stranger tokens for the organization's APIs."""
    answer = register(http, open_to_all, grant_types=["client_credentials"], redirect_uris=None)
    assert answer.status_code == 400 and answer.get_json()["error"] == "invalid_client_metadata"


def test_registration_ignores_fields_that_clients_may_not_choose(
    app: Flask, http: FlaskClient, open_to_all: OrganizationSnapshot
) -> None:
    """DC-2: an id, trust, audiences, an owner; unknown names are ignored (RFC 7591 section 2)."""
    told = register(
        http,
        open_to_all,
        client_id="cli_mine",
        client_secret="mine",
        trust="first_party",
        status="disabled",
        resources=["https://api.example/"],
        security_profile="fapi2",
        organization_id="root",
        created_by="root",
        source="person",
        software_statement="e30.e30.",
        **{"client_name#de": "Wetter", "made_up": {"deep": [1]}},
    ).get_json()
    assert told["client_id"] != "cli_mine" and told["client_secret"] != "mine"
    with app.app_context():
        row = db.session.scalars(select(Client).where(Client.name == "Weather Bot")).one()
        assert (row.trust, row.status, row.source) == ("unverified", "active", "dynamic")
        assert row.created_by == "the app itself" and row.owner_id is None
        assert row.document["resources"] == [] and row.document["security_profile"] is None


@each(
    "uri",
    [
        "javascript://rp/%0aalert(1)",
        "data://x/y",
        "http://rp.example/cb",
        "https://*.rp.example/cb",
        "https://rp.example/cb\n",
        "https://rp.example/cb#x",
        "https://user@rp.example/cb",
        "https://10.0.0.1/cb",
        "https://rp.example/../cb",
        "https://rp.example/cb?code=1",
        "",
        7,
    ],
)
def test_invalid_redirect_uri_returns_invalid_redirect_uri(
    http: FlaskClient, open_to_all: OrganizationSnapshot, uri: object
) -> None:
    """RU-3: self-registered clients follow the same rules."""
    answer = register(http, open_to_all, redirect_uris=[uri])
    assert answer.status_code == 400 and answer.get_json()["error"] == "invalid_redirect_uri"


@each(
    ("name", "value"),
    [
        ("client_name", "A\u202ecme"),
        ("client_name", "x" * 101),
        ("client_uri", "http://rp.example/"),
        ("logo_uri", "javascript:alert(1)"),
        ("policy_uri", "https://10.0.0.1/"),
        ("jwks_uri", "http://169.254.169.254/keys"),
        ("jwks", {"keys": [{"kty": "oct", "k": "AAAA"}]}),
        ("grant_types", "authorization_code"),
        ("grant_types", [7]),
        ("response_types", ["token"]),
        ("scope", ["openid"]),
        ("scope", "made:up"),
        ("token_endpoint_auth_method", "client_secret_jwt"),
        ("token_endpoint_auth_method", 7),
        ("id_token_signed_response_alg", "none"),
        ("id_token_signed_response_alg", "HS256"),
        ("subject_type", "secret"),
        ("default_max_age", "soon"),
        ("redirect_uris", "https://rp.example/cb"),
    ],
)
def test_invalid_metadata_returns_invalid_client_metadata(
    http: FlaskClient, open_to_all: OrganizationSnapshot, name: str, value: object
) -> None:
    answer = register(http, open_to_all, **{name: value})
    told = answer.get_json()
    assert answer.status_code == 400, answer.text
    assert told["error"] == ("invalid_redirect_uri" if name == "redirect_uris" else "invalid_client_metadata")
    assert all(" " <= char <= "~" and char not in '"\\' for char in told["error_description"])


def test_rejected_registration_stores_nothing(
    app: Flask, http: FlaskClient, open_to_all: OrganizationSnapshot
) -> None:
    assert register(http, open_to_all, redirect_uris=["http://rp.example/"]).status_code == 400
    with app.app_context():
        assert db.session.scalars(select(ClientRegistration)).all() == []
        assert (
            db.session.scalars(select(AuditEvent).where(AuditEvent.action == "client.registered")).all() == []
        )


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"client_name":"a","client_name":"b"}', b"\xff"])
def test_body_that_is_not_an_object_is_rejected(
    http: FlaskClient, open_to_all: OrganizationSnapshot, body: bytes
) -> None:
    answer = http.post(
        f"/organizations/{open_to_all.slug}/oauth/register", data=body, content_type="application/json"
    )
    assert answer.status_code == 400 and answer.get_json()["error"] == "invalid_client_metadata"


def test_keys_without_kid_are_accepted_and_encryption_keys_skipped(
    http: FlaskClient, open_to_all: OrganizationSnapshot
) -> None:
    signing = {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}
    encrypting = signing | {"use": "enc"}
    told = register(
        http, open_to_all, token_endpoint_auth_method="private_key_jwt", jwks={"keys": [signing, encrypting]}
    ).get_json()
    assert told["jwks"] == {"keys": [signing]}
    assert "client_secret" not in told and "client_secret_expires_at" not in told


@pytest.mark.parametrize(
    ("redirect_uri", "method", "kind"),
    [
        ("http://127.0.0.1:33418/cb", "none", "native"),
        ("http://localhost/cb", "none", "native"),
        ("com.example.app:/cb", "client_secret_basic", "native"),
        ("https://app.example/cb", "none", "spa"),
        ("http://localhost:6274/cb", "client_secret_post", "web"),
        # A native app that chooses no method.
        ("http://127.0.0.1/cb", None, "native"),
    ],
)
def test_client_type_is_derived_from_the_metadata(
    app: Flask,
    http: FlaskClient,
    open_to_all: OrganizationSnapshot,
    redirect_uri: str,
    method: str | None,
    kind: str,
) -> None:
    """RFC 8252 sections 7.3 and 8.5: an app on the user's device cannot keep a secret, and its port may vary."""
    fields = {"token_endpoint_auth_method": method, "application_type": None if method else kind}
    told = register(http, open_to_all, redirect_uris=[redirect_uri], **fields).get_json()
    assert told["token_endpoint_auth_method"] == ("none" if kind in ("native", "spa") else method)
    with app.app_context():
        assert db.session.scalars(select(Client.type).where(Client.source == "dynamic")).one() == kind


def test_registration_at_root_uses_the_root_organization(http: FlaskClient, make: Factory) -> None:
    make.root()
    answer = http.post("/oauth/register", json=GOOD)
    assert answer.status_code == 403 and answer.get_json()["error"] == "access_denied"


def test_registration_is_open_to_every_origin(http: FlaskClient, open_to_all: OrganizationSnapshot) -> None:
    path = f"/organizations/{open_to_all.slug}/oauth/register"
    origin = {"Origin": "https://app.example"}
    assert http.post(path, json=GOOD, headers=origin).headers["Access-Control-Allow-Origin"] == "*"
    asked = http.options(f"{path}/cli_x", headers=origin)
    assert asked.headers["Access-Control-Allow-Methods"] == "GET, POST, PUT, DELETE"


@pytest.mark.parametrize(
    "name",
    [
        "client_name", "redirect_uris", "token_endpoint_auth_method", "grant_types", "response_types", "scope",
        "contacts", "application_type", "jwks", "jwks_uri", "sector_identifier_uri", "default_max_age",
    ],
)  # fmt: skip
def test_values_of_the_wrong_type_are_never_a_500(
    http: FlaskClient, open_to_all: OrganizationSnapshot, name: str
) -> None:
    """DC-2: the response is an error of RFC 7591."""
    for value in (True, 5, 1.5, "", "x", [], {}, [5], [[]], [{}], {"keys": [5]}, {"keys": [{"kty": []}]}):
        answer = register(http, open_to_all, **{name: value})
        assert answer.status_code in {201, 400}, (name, value, answer.text)
        if answer.status_code == 400:
            assert answer.get_json()["error"] in {"invalid_redirect_uri", "invalid_client_metadata"}
