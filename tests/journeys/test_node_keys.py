"""Third-party clients with their own keys: DPoP, the FAPI 2.0 profile, signed requests."""

from __future__ import annotations

import pytest

from app.operations.clients.resources import define_resource
from app.operations.organizations.settings import update_settings
from tests.journeys.node_clients import SCOPE, Grove, private
from tests.support.signer import Signer

pytestmark = pytest.mark.live


@pytest.mark.parametrize("algorithm", ["ES256", "Ed25519"])
def test_browser_app_with_dpop_succeeds(grove: Grove, algorithm: str) -> None:
    """RFC 9449 with a public client: the code is bound by dpop_jkt, refresh tokens rotate and stay bound."""
    client = grove.register(type="spa", dpop_bound_access_tokens=True)
    grove.walk("browser_app", client, proof_algorithm=algorithm)


@pytest.mark.parametrize(
    ("script", "algorithm", "proof", "demands"),
    [
        ("fapi", "ES256", "ES256", False),
        ("fapi", "PS256", "PS256", True),
        ("fapi_openid", "EdDSA", "Ed25519", False),
    ],
)
def test_fapi_client_succeeds(grove: Grove, script: str, algorithm: str, proof: str, demands: bool) -> None:
    """The FAPI 2.0 Security Profile: pushed requests, client assertions, DPoP with nonces, JWT access tokens."""
    resource = "https://accounts.example/v1"
    with grove.server.app.app_context():
        actor = grove.make.actor(grove.user.organization)
        fields = {"identifier": resource, "name": "Accounts", "scopes": [{"name": "accounts:read"}]}
        define_resource(actor, fields)
        update_settings(actor, grove.user.organization.slug, {"oauth": {"require_par": demands}})
    signer = Signer(algorithm)
    client = grove.register(
        security_profile="fapi2",
        token_endpoint_auth_method="private_key_jwt",
        jwks=signer.jwks,
        access_token_format="jwt",
        id_token_signed_response_alg=algorithm,
        scopes=[*SCOPE.split(), "accounts:read"],
    )
    grove.walk(
        script,
        client,
        algorithm=algorithm,
        key=private(signer),
        proof_algorithm=proof,
        organization_demands=demands,
        resource=resource,
        scope="accounts:read",
    )


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "EdDSA"])
def test_signed_requests_are_accepted(grove: Grove, algorithm: str) -> None:
    """RFC 9101 and 9126 with a client that must sign its requests."""
    signer = Signer(algorithm)
    client = grove.register(
        jwks=signer.jwks, request_object_signing_alg=algorithm, require_signed_request_object=True
    )
    grove.walk("request_object", client, key=private(signer))
