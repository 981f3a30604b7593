"""Third-party clients in their strictest settings over https: openid-client, oauth4webapi and jose."""

from __future__ import annotations

from typing import Any

import pytest

from app.operations.clients.initial_access_tokens import create_registration_token
from app.operations.clients.resources import define_resource
from app.rules.organizations.settings_table import TOKEN_EXCHANGE
from tests.journeys.node_clients import REDIRECT_URI, SCOPE, Grove, private
from tests.support.back_channel import serve_at
from tests.support.signer import Signer

pytestmark = pytest.mark.live


@pytest.mark.parametrize(
    ("method", "algorithm"),
    [
        ("client_secret_basic", "RS256"),
        ("client_secret_post", "PS256"),
        ("private_key_jwt", "EdDSA"),
        ("none", "ES256"),
    ],
)
def test_code_flow_succeeds(grove: Grove, method: str, algorithm: str) -> None:
    """Every authentication method and ID token algorithm (RFC 6749, 7636, 9207; OpenID Connect Core)."""
    signer = Signer()
    fields: dict[str, Any] = {"token_endpoint_auth_method": method}
    if method == "private_key_jwt":
        fields["jwks_uri"] = "https://orchard.example/jwks.json"
    client = grove.register(
        type="spa" if method == "none" else "web", id_token_signed_response_alg=algorithm, **fields
    )
    if method == "private_key_jwt":
        serve_at(grove.server.app, client, jwks_uri=grove.site.publish("/jwks.json", signer.jwks))
    found = grove.walk("code", client, algorithm=algorithm, key=private(signer))
    assert found["sub"] == grove.user.public_id


def test_code_flow_of_an_unregistered_client_succeeds(grove: Grove) -> None:
    """Its client_id is the URL of its metadata (draft-ietf-oauth-client-id-metadata-document)."""
    address = grove.site.address("/notes.json")
    document = {
        "client_id": address,
        "client_name": "Field Notes",
        "redirect_uris": [REDIRECT_URI],
        "grant_types": ["authorization_code", "refresh_token"],
        "token_endpoint_auth_method": "none",
    }
    grove.site.publish("/notes.json", document)
    grove.walk("code", client_id=address, method="none", algorithm="RS256")


def test_form_post_responses_are_accepted(grove: Grove) -> None:
    """OAuth 2.0 Form Post Response Mode, for errors too."""
    grove.walk("form_post", grove.register())


def test_every_prompt_value_works(grove: Grove) -> None:
    """OpenID Connect Core section 3.1.2.1 and prompt=create."""
    grove.walk("prompts", grove.register())


def test_pairwise_subjects_and_signed_userinfo_are_accepted(grove: Grove) -> None:
    """OpenID Connect Core sections 5.3.2 and 8: a different sub for each sector, stable over time."""

    def sub(host: str, kind: str) -> str:
        redirect_uri = f"https://{host}/callback"
        client = grove.register(
            redirect_uris=[redirect_uri], subject_type=kind, userinfo_signed_response_alg="ES256"
        )
        return str(
            grove.walk(
                "subjects",
                client,
                redirect_uri=redirect_uri,
                subject_type=kind,
                userinfo_algorithm="ES256",
            )["sub"]
        )

    known = grove.user.public_id
    assert sub("orchard.example", "public") == known
    here, again, there = (sub(host, "pairwise") for host in ("a.example", "a.example", "b.example"))
    assert here == again
    assert len({known, here, there}) == 3


def test_device_flow_succeeds(grove: Grove) -> None:
    """RFC 8628: the device polls while a user enters its code."""
    client = grove.register(type="device", redirect_uris=[], token_endpoint_auth_method="none")
    assert grove.walk("device", client)["sub"] == grove.user.public_id


def test_token_exchange_between_apis_succeeds(grove: Grove) -> None:
    """RFC 8693, 8707 and 9701: token exchange with act, resource indicators, introspection as a JWT."""
    first = {"identifier": "https://orders.example", "scope": "orders:read"}
    second = {"identifier": "https://stock.example", "scope": "stock:read"}
    with grove.server.app.app_context():
        actor = grove.make.actor(grove.user.organization)
        for api in (first, second):
            fields = {"identifier": api["identifier"], "name": "API", "scopes": [{"name": api["scope"]}]}
            define_resource(actor, fields)
    client = grove.register(scopes=[*SCOPE.split(), first["scope"], second["scope"]])
    service = grove.register(
        name="Orders API",
        type="machine",
        redirect_uris=[],
        scopes=[first["scope"], second["scope"]],
        resources=[first["identifier"], second["identifier"]],
        grant_types=["client_credentials", TOKEN_EXCHANGE],
        token_exchange="delegation",
        introspection_signed_response_alg="ES256",
    )
    known = {"client_id": service.client_id, "client_secret": service.secret}
    grove.walk("exchange", client, first=first, second=second, service=known)


def test_client_credentials_flow_succeeds(grove: Grove) -> None:
    """RFC 6749 section 4.4, 7662, 7009, 9701."""
    resource = "https://reports.example"
    with grove.server.app.app_context():
        fields = {"identifier": resource, "name": "Reports", "scopes": [{"name": "reports:read"}]}
        define_resource(grove.make.actor(grove.user.organization), fields)
    client = grove.make.machine(grove.user.organization, "reports:read")
    grove.walk("machine", client, scope="reports:read", resource=resource)


def test_logout_succeeds(grove: Grove) -> None:
    """RP-initiated and back-channel logout."""
    client = grove.register(post_logout_redirect_uris=["https://orchard.example/out"])
    path = f"/told/{client.client_id}"
    serve_at(grove.server.app, client, backchannel_logout_uri=grove.site.address(path))
    grove.walk(
        "logout",
        client,
        post_logout_redirect_uri="https://orchard.example/out",
        backchannel_path=path,
    )


def test_dynamic_registration_succeeds(grove: Grove) -> None:
    """RFC 7591 and 7592."""
    with grove.server.app.app_context():
        actor = grove.make.actor(grove.user.organization)
        token = create_registration_token(actor, {"name": "Partners"}).token
    grove.walk("registration", initial_access_token=token)


def test_discovery_is_accepted_at_every_url(grove: Grove) -> None:
    """RFC 8414, OpenID Connect Discovery, RFC 9728."""
    grove.walk("discovery", root=grove.server.url)
