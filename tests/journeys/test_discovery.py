"""Discovery at its three URLs: the same document each time, matching the server."""

from __future__ import annotations

import pytest
import requests
from authlib.oauth2.rfc8414 import AuthorizationServerMetadata
from authlib.oidc.discovery import OpenIDProviderMetadata

from tests.journeys.conftest import Journey


def addresses(journey: Journey) -> list[str]:
    base, slug = journey.server.url, journey.client.organization.slug
    return [
        f"{journey.issuer}/.well-known/openid-configuration",
        f"{base}/.well-known/oauth-authorization-server/organizations/{slug}",
        f"{base}/.well-known/openid-configuration/organizations/{slug}",
    ]


def test_three_urls_serve_the_same_document(journey: Journey) -> None:
    documents = [requests.get(address, timeout=10).json() for address in addresses(journey)]
    assert (
        documents[0]["issuer"]
        == journey.issuer
        == f"{journey.server.url}/organizations/{journey.client.organization.slug}"
    )
    assert documents[1] == documents[2] == documents[0]


def test_root_issuer_is_the_base_url(journey: Journey) -> None:
    for path in ("openid-configuration", "oauth-authorization-server"):
        document = requests.get(f"{journey.server.url}/.well-known/{path}", timeout=10).json()
        assert document["issuer"] == journey.server.url


@pytest.mark.parametrize("kind", [OpenIDProviderMetadata, AuthorizationServerMetadata])
def test_metadata_is_valid_except_for_http(journey: Journey, kind: type) -> None:
    """Authlib's own checks; deployments use https, so loopback URLs are rewritten."""
    text = requests.get(addresses(journey)[0], timeout=10).text
    import json

    document = json.loads(text.replace("http://127.0.0.1", "https://127.0.0.1"))
    kind(document).validate()
    assert document["code_challenge_methods_supported"] == ["S256"]
    assert document["response_types_supported"] == ["code"]
    assert document["authorization_response_iss_parameter_supported"] is True


def test_every_listed_endpoint_responds(journey: Journey) -> None:
    document = journey.metadata()
    for name, url in document.items():
        if name.endswith("_endpoint") or name == "jwks_uri":
            assert requests.get(url, timeout=10, allow_redirects=False).status_code != 404, name


def test_keys_are_public_and_distinct(journey: Journey) -> None:
    keys = requests.get(journey.metadata()["jwks_uri"], timeout=10).json()["keys"]
    assert len({key["kid"] for key in keys}) == len(keys) > 0
    assert not [key for key in keys if set(key) & {"d", "p", "q", "dp", "dq", "qi", "k"}]
