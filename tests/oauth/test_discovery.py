"""Metadata and keys: one document at three URLs, complete for the server's features and the organization's settings.

``tests/journeys/test_discovery.py`` shows that each listed value is honored.
"""

from __future__ import annotations

import pytest
from flask.testing import FlaskClient

from app.oauth import server
from app.operations.organizations.organizations import delete_organization, update_organization
from app.operations.organizations.settings import update_settings
from app.rules.authorization import interaction
from app.rules.authorization.authorization_request import PROMPTS, RESPONSE_MODES
from app.rules.clients.client_types import AUTH_METHODS, TOKEN_EXCHANGE
from tests.factories import Factory
from tests.oauth.conftest import FAST_KEYS, Flow

pytestmark = pytest.mark.either

KINDS = ("openid-configuration", "oauth-authorization-server")


def addresses(slug: str) -> list[str]:
    """Return the URLs where clients may look for an organization's metadata."""
    return [
        *(f"/organizations/{slug}/.well-known/{kind}" for kind in KINDS),
        *(f"/.well-known/{kind}/organizations/{slug}" for kind in KINDS),
    ]


def test_all_metadata_urls_return_the_same_bytes(http: FlaskClient, make: Factory) -> None:
    organization = make.organization()
    answers = [http.get(address) for address in addresses(organization.slug)]
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.data for answer in answers}) == 1
    assert {answer.mimetype for answer in answers} == {"application/json"}


def test_issuer_matches_the_url_of_the_document(http: FlaskClient, make: Factory) -> None:
    """MX-2."""
    organization = make.organization()
    document = http.get(addresses(organization.slug)[0]).get_json()
    assert document["issuer"] == f"http://localhost/organizations/{organization.slug}" == organization.issuer
    root = make.root()
    for kind in KINDS:
        assert http.get(f"/.well-known/{kind}").get_json()["issuer"] == "http://localhost" == root.issuer


def test_metadata_lists_the_supported_features(http: FlaskClient, make: Factory) -> None:
    """OI-3, PK-2: derived from ``server.py`` and the organization's settings."""
    organization = make.organization()
    document = http.get(addresses(organization.slug)[0]).get_json()
    # Token exchange is disabled by default.
    assert {*document["grant_types_supported"], TOKEN_EXCHANGE} == set(server.GRANT_TYPES)
    assert TOKEN_EXCHANGE not in document["grant_types_supported"]
    assert document["response_types_supported"] == list(server.RESPONSE_TYPES) == ["code"]
    assert document["response_modes_supported"] == list(RESPONSE_MODES)
    assert document["code_challenge_methods_supported"] == ["S256"]
    assert document["prompt_values_supported"] == [prompt for prompt in PROMPTS if prompt != "create"]
    assert document["subject_types_supported"] == ["public", "pairwise"]
    assert document["acr_values_supported"] == list(interaction.SUPPORTED)
    assert (
        document["userinfo_signing_alg_values_supported"] == document["id_token_signing_alg_values_supported"]
    )
    assert document["token_endpoint_auth_methods_supported"] == list(AUTH_METHODS)
    assert "none" not in document["introspection_endpoint_auth_methods_supported"]
    assert "RS256" in document["id_token_signing_alg_values_supported"]
    assert "none" not in document["id_token_signing_alg_values_supported"]
    assert {"openid", "profile", "email", "offline_access"} <= set(document["scopes_supported"])
    assert {"sub", "email", "name", "updated_at"} <= set(document["claims_supported"])
    assert document["claims_parameter_supported"] is True
    assert document["request_parameter_supported"] is True
    assert document["request_uri_parameter_supported"] is False
    assert document["require_pushed_authorization_requests"] is False
    for name in (
        "token_endpoint_auth",
        "introspection_endpoint_auth",
        "revocation_endpoint_auth",
        "request_object",
    ):
        algorithms = document[f"{name}_signing_alg_values_supported"]
        assert algorithms == ["RS256", "PS256", "ES256", "EdDSA", "Ed25519"]
    assert document["authorization_response_iss_parameter_supported"] is True


def test_metadata_lists_registration_only_where_it_is_open(http: FlaskClient, make: Factory) -> None:
    """Initiating User Registration 1.0 section 3: ``create`` is listed only where it is supported."""
    is_open = make.organization(settings={"authentication": {"registration": {"mode": "open"}}})
    document = http.get(addresses(is_open.slug)[0]).get_json()
    assert document["prompt_values_supported"] == list(PROMPTS)


def test_discovery_omits_what_the_organization_forbids(http: FlaskClient, make: Factory) -> None:
    organization = make.organization()
    for method, grant_type in (("client_secret_post", "client_credentials"), ("none", "authorization_code")):
        with http.application.app_context():
            oauth = {"grant_types": [grant_type], "clients": {"token_endpoint_auth_methods": [method]}}
            update_settings(make.system(organization), organization.slug, {"oauth": oauth})
        document = http.get(addresses(organization.slug)[0]).get_json()
        assert document["grant_types_supported"] == [grant_type]
        assert document["token_endpoint_auth_methods_supported"] == [method]
        assert not [name for name in document if name.endswith("_auth_signing_alg_values_supported")]
        assert [] not in document.values()


def test_unknown_organization_has_no_metadata(http: FlaskClient, make: Factory) -> None:
    make.root()
    gone = make.organization()
    with http.application.app_context():
        delete_organization(make.system(gone), gone.slug)
    for slug in ("nobody", gone.slug):
        assert {http.get(address).status_code for address in addresses(slug)} == {404}


@pytest.mark.slow
def test_keys_are_public_distinct_and_named_by_thumbprint(flow: Flow) -> None:
    """KY-3, KY-4: no private or symmetric member."""
    from joserfc.jwk import import_key

    for algorithm in ("RS256", "ES256", "EdDSA", "PS256"):
        other = flow.other_client(trust="first_party", id_token_signed_response_alg=algorithm)
        other.tokens()
    answer = flow.http.get(f"{flow.issuer}/oauth/jwks")
    keys = answer.get_json()["keys"]
    assert sorted(key["alg"] for key in keys) == ["ES256", "EdDSA", "PS256", "RS256"]
    assert len({key["kid"] for key in keys}) == 4
    for key in keys:
        assert set(key) <= {"kty", "kid", "use", "alg", "n", "e", "crv", "x", "y"}
        assert key["use"] == "sig" and key["kty"] in {"RSA", "EC", "OKP"}
        bare = {name: value for name, value in key.items() if name not in {"kid", "use", "alg"}}
        assert import_key(bare).thumbprint() == key["kid"]
    [n] = [key["n"] for key in keys if key["alg"] == "RS256"]
    assert len(n) >= 3072 // 6, "KY-1: 3072 bits"


def test_first_key_request_creates_a_key(http: FlaskClient, make: Factory) -> None:
    """KY-1: for the organization's signing algorithm, so that no client receives an empty key set."""
    organization = make.organization(settings=FAST_KEYS)
    first, second = (http.get(f"{organization.issuer}/oauth/jwks").get_json() for _ in range(2))
    assert [key["alg"] for key in first["keys"]] == ["ES256"]
    assert first == second


def test_suspended_organization_keeps_its_keys_and_creates_none(http: FlaskClient, make: Factory) -> None:
    make.root()
    organization = make.organization(settings=FAST_KEYS)
    with http.application.app_context():
        update_organization(make.system(organization), organization.slug, {"status": "suspended"})
    assert http.get(f"{organization.issuer}/oauth/jwks").get_json() == {"keys": []}


@pytest.mark.parametrize("path", ["/.well-known/openid-configuration", "/oauth/jwks"])
def test_public_documents_are_cacheable(http: FlaskClient, make: Factory, path: str) -> None:
    make.root()
    assert http.get(path).headers["Cache-Control"] == "public, max-age=300"


def test_metadata_does_not_exist_before_setup(http: FlaskClient) -> None:
    assert http.get("/.well-known/openid-configuration").status_code == 404
