"""Key and metadata documents: cached as bytes, the same from the fast path and Flask, never stale."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from app.oauth import discovery
from app.operations.clients.clients import update_client
from app.operations.clients.scopes import add_scopes
from app.operations.grants.key_rotation import advance_rotation, replace_key_immediately
from app.operations.grants.signing_keys import get_active_key
from app.operations.organizations.organizations import delete_organization
from app.operations.organizations.settings import update_settings
from tests.factories import Factory
from tests.fast_path.test_middleware import environ, send

pytestmark = pytest.mark.either

FAST = {"oauth": {"signing": {"algorithm": "EdDSA"}}}
ADDRESSES = (
    "/organizations/{}/oauth/jwks",
    "/organizations/{}/.well-known/openid-configuration",
    "/organizations/{}/.well-known/oauth-authorization-server",
    "/.well-known/openid-configuration/organizations/{}",
    "/.well-known/oauth-authorization-server/organizations/{}",
)


def kids(http: FlaskClient, slug: str) -> set[str]:
    return {key["kid"] for key in http.get(f"/organizations/{slug}/oauth/jwks").get_json()["keys"]}


def scopes(http: FlaskClient, slug: str) -> list[str]:
    found: list[str] = http.get(f"/organizations/{slug}/.well-known/openid-configuration").get_json()[
        "scopes_supported"
    ]
    return found


@pytest.mark.parametrize("address", ADDRESSES)
def test_fast_path_and_flask_return_the_same(app: Flask, make: Factory, address: str) -> None:
    path = address.format(make.organization(settings=FAST).slug)
    status, body = send(app, environ(REQUEST_METHOD="GET", PATH_INFO=path))
    by_flask = app.test_client().open(path, method="HEAD")
    assert status == "200 OK" and by_flask.status_code == 200
    by_lane = app.test_client().get(path)
    assert by_lane.data == body
    assert {k: v for k, v in by_lane.headers if k != "X-Request-Id"} == {
        k: v for k, v in by_flask.headers if k != "X-Request-Id"
    }


def test_public_documents_are_cacheable_and_readable_by_every_origin(
    http: FlaskClient, make: Factory
) -> None:
    """CR-2."""
    answer = http.get(ADDRESSES[0].format(make.organization(settings=FAST).slug))
    assert answer.headers["Cache-Control"] == "public, max-age=300"
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    assert answer.headers["Cross-Origin-Resource-Policy"] == "cross-origin"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert not answer.headers["Server"]


@pytest.mark.parametrize("held", ["{}", "W/{}", '"other", {}', "*"])
def test_matching_etag_returns_304(http: FlaskClient, make: Factory, held: str) -> None:
    path = ADDRESSES[0].format(make.organization(settings=FAST).slug)
    etag = http.get(path).headers["ETag"]
    answer = http.get(path, headers={"If-None-Match": held.format(etag)})
    assert (answer.status_code, answer.data) == (304, b"")
    assert answer.headers["ETag"] == etag
    assert answer.headers["Cache-Control"] == "public, max-age=300"
    assert http.get(path, headers={"If-None-Match": '"other"'}).status_code == 200


def test_rotation_steps_appear_in_the_key_set_immediately(
    app: Flask, http: FlaskClient, make: Factory
) -> None:
    """KY-1, KY-5: the signing key is always published."""
    acme = make.organization(settings=FAST)
    first = kids(http, acme.slug)
    etag = http.get(ADDRESSES[0].format(acme.slug)).headers["ETag"]
    with app.app_context():
        added = advance_rotation(make.system(acme), "EdDSA")
        assert kids(http, acme.slug) == first | {added}
        other = get_active_key(acme, "ES256").kid
        assert kids(http, acme.slug) == first | {added, other}
        fresh = replace_key_immediately(make.system(acme), "EdDSA")
    assert kids(http, acme.slug) == {fresh, other}
    assert http.get(ADDRESSES[0].format(acme.slug), headers={"If-None-Match": etag}).status_code == 200


def test_scope_and_setting_changes_appear_immediately(app: Flask, http: FlaskClient, make: Factory) -> None:
    acme = make.organization(settings=FAST)
    assert "orders:read" not in scopes(http, acme.slug)
    with app.app_context():
        add_scopes(make.actor(acme), ["orders:read"])
    assert "orders:read" in scopes(http, acme.slug)
    with app.app_context():
        update_settings(make.actor(acme), acme.slug, {"oauth": {"grant_types": ["client_credentials"]}})
    document = http.get(ADDRESSES[1].format(acme.slug)).get_json()
    assert document["grant_types_supported"] == ["client_credentials"]


def test_deleted_organization_has_no_documents(app: Flask, http: FlaskClient, make: Factory) -> None:
    acme = make.organization(settings=FAST)
    assert kids(http, acme.slug)
    with app.app_context():
        delete_organization(make.actor(acme), acme.slug)
    for address in ADDRESSES:
        assert http.get(address.format(acme.slug)).status_code == 404


def test_organizations_do_not_share_cached_documents(http: FlaskClient, make: Factory) -> None:
    """TN-1."""
    here, there = make.organization(settings=FAST), make.organization(settings=FAST)
    assert not kids(http, here.slug) & kids(http, there.slug)


def test_unchanged_document_is_serialized_once(
    app: Flask, http: FlaskClient, make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    acme = make.organization(settings=FAST)
    serialized, made = discovery._serialized, []

    def counted(*arguments: Any) -> Any:
        made.append(arguments)
        return serialized(*arguments)

    # The first request generates the first key, which changes the document.
    kids(http, acme.slug)
    monkeypatch.setattr(discovery, "_serialized", counted)
    for _ in range(20):
        kids(http, acme.slug)
    assert len(made) <= 1


def algorithms(http: FlaskClient, slug: str) -> set[str]:
    return {key["alg"] for key in http.get(f"/organizations/{slug}/oauth/jwks").get_json()["keys"]}


@pytest.mark.parametrize(
    "field",
    ["id_token_signed_response_alg", "userinfo_signed_response_alg", "introspection_signed_response_alg"],
)
def test_chosen_algorithm_is_published_before_it_signs(http: FlaskClient, make: Factory, field: str) -> None:
    """KY-2: a key set cached at the start of a sign-in contains every key the sign-in uses."""
    organization = make.organization(settings=FAST)
    make.client(organization, **{field: "ES256"})
    assert algorithms(http, organization.slug) == {"EdDSA", "ES256"}
    other = make.organization(settings={"oauth": {"signing": {"algorithm": "ES256"}}})
    client = make.client(other)
    assert algorithms(http, other.slug) == {"ES256"}
    with make.app.app_context():
        update_client(make.system(other), client.client_id, {field: "EdDSA"})
    assert algorithms(http, other.slug) == {"EdDSA", "ES256"}
