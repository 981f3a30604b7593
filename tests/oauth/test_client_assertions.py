"""private_key_jwt at the OAuth endpoints (RFC 7523): each assertion is valid once, for its audience."""

from __future__ import annotations

import time
from typing import Any

import pytest
from flask.testing import FlaskClient

from app.fast_path import cache_invalidation
from app.operations.clients import client_authentication
from app.operations.clients.clients import delete_client, update_client
from app.rules.clients.client_assertions import TYPE
from tests.factories import Factory, MadeClient, basic_header
from tests.oauth.conftest import on_another_worker
from tests.support.signer import Signer, new_key

pytestmark = pytest.mark.either

ENDPOINTS: dict[str, dict[str, str]] = {
    "/oauth/token": {"grant_type": "client_credentials"},
    "/oauth/introspect": {"token": "x"},
    "/oauth/revoke": {"token": "x"},
}
PATHS = pytest.mark.parametrize("path", ENDPOINTS)


@pytest.fixture
def signing(make: Factory, signer: Signer) -> MadeClient:
    """A client registered for private_key_jwt, with its key."""
    return make.machine(make.organization(), "reports:read", **signer.registration)


def issuer_of(client: MadeClient) -> str:
    return client.organization.issuer


def post(http: FlaskClient, path: str, fields: dict[str, str], headers: dict[str, str] | None = None):
    return http.post(path, data=ENDPOINTS[path] | fields, headers=headers)


def assert_refused(answer: Any) -> None:
    assert (answer.status_code, answer.get_json()["error"]) == (401, "invalid_client"), answer.text
    assert answer.get_json()["error_description"] == "Client authentication failed."


@PATHS
def test_assertion_authenticates_the_client(http, path: str, signing: MadeClient, signer: Signer) -> None:
    fields = signer.fields(signing.client_id, issuer_of(signing))
    assert post(http, path, fields).status_code == 200
    fields = signer.fields(signing.client_id, issuer_of(signing))
    assert post(http, path, fields | {"client_id": signing.client_id}).status_code == 200
    under = f"/organizations/{signing.organization.slug}{path}"
    fields = signer.fields(signing.client_id, issuer_of(signing))
    assert http.post(under, data=ENDPOINTS[path] | fields).status_code == 200


@PATHS
def test_assertion_is_accepted_only_once(http, path: str, signing: MadeClient, signer: Signer) -> None:
    """CA-6: at any endpoint and with any other parameters."""
    fields = signer.fields(signing.client_id, issuer_of(signing), jti="once")
    assert post(http, path, fields).status_code == 200
    for again in ENDPOINTS:
        assert_refused(post(http, again, fields))
    assert_refused(post(http, path, signer.fields(signing.client_id, issuer_of(signing), jti="once", more=1)))
    assert (
        post(http, path, signer.fields(signing.client_id, issuer_of(signing), jti="twice")).status_code == 200
    )


def test_assertion_of_a_rejected_request_is_consumed(http, signing: MadeClient, signer: Signer) -> None:
    fields = signer.fields(signing.client_id, issuer_of(signing))
    answer = http.post("/oauth/token", data={"grant_type": "client_credentials", "scope": "nothing"} | fields)
    assert answer.get_json()["error"] == "invalid_scope"
    assert_refused(post(http, "/oauth/token", fields))


def test_assertion_ids_are_scoped_to_the_client(
    http, make: Factory, signing: MadeClient, signer: Signer
) -> None:
    other = make.machine(signing.organization, "reports:read", **signer.registration)
    for client in (signing, other):
        fields = signer.fields(client.client_id, issuer_of(client), jti="one")
        assert post(http, "/oauth/token", fields).status_code == 200


@pytest.mark.parametrize("where", ["issuer", "token endpoint", "called"])
def test_issuer_token_endpoint_and_called_endpoint_are_valid_audiences(
    http, signing: MadeClient, signer: Signer, where: str
) -> None:
    issuer = issuer_of(signing)
    audience = {
        "issuer": issuer,
        "token endpoint": f"{issuer}/oauth/token",
        "called": "http://localhost/oauth/revoke",
    }
    fields = signer.fields(signing.client_id, audience[where])
    assert post(http, "/oauth/revoke", fields).status_code == 200


def test_another_organization_is_not_a_valid_audience(
    http, make: Factory, signing: MadeClient, signer: Signer
) -> None:
    """MX-3, CA-6: the assertion is rejected at another organization's endpoint too."""
    other = make.organization()
    assert_refused(post(http, "/oauth/token", signer.fields(signing.client_id, other.issuer)))
    fields = signer.fields(signing.client_id, issuer_of(signing))
    assert_refused(
        http.post(f"/organizations/{other.slug}/oauth/token", data=ENDPOINTS["/oauth/token"] | fields)
    )


def test_fapi_client_must_use_the_issuer_as_the_only_audience(http, make: Factory, signer: Signer) -> None:
    """CA-6: as a string, and never signed with RS256."""
    organization = make.organization()
    client = make.machine(organization, "reports:read", security_profile="fapi2", **signer.registration)
    for audience in (f"{organization.issuer}/oauth/token", [organization.issuer]):
        assert_refused(post(http, "/oauth/introspect", signer.fields(client.client_id, audience)))
    fields = signer.fields(client.client_id, organization.issuer)
    assert post(http, "/oauth/introspect", fields).status_code == 200
    rsa = Signer("RS256")
    client = make.machine(organization, "reports:read", security_profile="fapi2", **rsa.registration)
    assert_refused(post(http, "/oauth/introspect", rsa.fields(client.client_id, organization.issuer)))
    stronger = Signer("PS256", key=rsa.key).fields(client.client_id, organization.issuer)
    assert post(http, "/oauth/introspect", stronger).status_code == 200


@pytest.mark.parametrize("registered", ["EdDSA", "Ed25519"])
def test_both_names_of_an_algorithm_can_be_registered(http, make: Factory, registered: str) -> None:
    """Discovery offers both: Ed25519 is RFC 9864's name of EdDSA."""
    fields = {"token_endpoint_auth_signing_alg": registered, "security_profile": "fapi2"}
    signer = Signer("EdDSA")
    client = make.machine(make.organization(), "reports:read", **fields, **signer.registration)
    for name in ("EdDSA", "Ed25519"):
        sent = Signer(name, key=signer.key).fields(client.client_id, issuer_of(client))
        assert post(http, "/oauth/introspect", sent).status_code == 200


def test_only_the_registered_algorithm_is_accepted(http, make: Factory) -> None:
    rsa = Signer("RS256")
    client = make.machine(
        make.organization(), "reports:read", token_endpoint_auth_signing_alg="PS256", **rsa.registration
    )
    issuer = issuer_of(client)
    assert_refused(post(http, "/oauth/token", rsa.fields(client.client_id, issuer)))
    chosen = Signer("PS256", key=rsa.key).fields(client.client_id, issuer)
    assert post(http, "/oauth/token", chosen).status_code == 200


@PATHS
def test_every_failure_returns_the_same_response(
    http, make: Factory, path: str, signing: MadeClient, signer
) -> None:
    """CA-3: an unknown client, a wrong key, an invalid time."""
    issuer, stranger = issuer_of(signing), Signer(key=new_key())
    unknown = make.machine(signing.organization, "reports:read", **signer.registration)
    with http.application.app_context():
        delete_client(make.actor(signing.organization), unknown.client_id)
    answers = [
        post(http, path, fields)
        for fields in (
            signer.fields(unknown.client_id, issuer),
            signer.fields("cli_nobody", issuer),
            stranger.fields(signing.client_id, issuer),
            signer.fields(signing.client_id, issuer, exp=int(time.time()) - 60),
            signer.fields(signing.client_id, issuer, exp=int(time.time()) + 600),
            signer.fields(signing.client_id, issuer) | {"client_id": unknown.client_id},
            signer.fields(signing.client_id, issuer) | {"client_assertion": "a.b.c"},
            signer.fields(signing.client_id, issuer) | {"client_assertion": "x" * 50_000},
            signer.fields(signing.client_id, issuer) | {"client_assertion_type": "urn:of:another"},
        )
    ]
    for answer in answers:
        assert_refused(answer)
    assert len({answer.data for answer in answers}) == 1


@PATHS
def test_only_the_registered_method_is_accepted(
    http, make: Factory, path: str, signing: MadeClient, signer: Signer
) -> None:
    """CA-1, CA-7: neither a secret nor an id alone replaces the assertion, nor the reverse."""
    secret = make.machine(signing.organization, "reports:read")
    assert_refused(post(http, path, {}, basic_header(signing.client_id, secret.secret)))
    assert_refused(post(http, path, {"client_id": signing.client_id, "client_secret": secret.secret}))
    assert_refused(post(http, path, {"client_id": signing.client_id}))
    assert_refused(post(http, path, signer.fields(secret.client_id, issuer_of(secret))))
    public = make.client(signing.organization, type="spa", jwks=signer.jwks)
    assert_refused(post(http, path, signer.fields(public.client_id, issuer_of(public))))


@PATHS
def test_two_methods_at_once_are_refused(http, path: str, signing: MadeClient, signer: Signer) -> None:
    """CA-1."""
    fields = signer.fields(signing.client_id, issuer_of(signing))
    for answer in (
        post(http, path, fields, basic_header(signing.client_id, "secret")),
        post(http, path, fields | {"client_secret": "secret"}),
        post(http, path, {"client_assertion_type": TYPE, "client_id": signing.client_id}),
        post(http, path, {"client_assertion": fields["client_assertion"]}),
    ):
        assert (answer.status_code, answer.get_json()["error"]) == (400, "invalid_request")
    assert post(http, path, fields).status_code == 200


def test_disabled_client_cannot_authenticate(
    http, make: Factory, signing: MadeClient, signer: Signer
) -> None:
    with http.application.app_context():
        update_client(make.actor(signing.organization), signing.client_id, {"status": "disabled"})
    assert_refused(post(http, "/oauth/token", signer.fields(signing.client_id, issuer_of(signing))))


@PATHS
def test_key_removed_on_another_worker_is_rejected_immediately(
    http, make: Factory, path: str, signing: MadeClient, signer: Signer
) -> None:
    """F24: this worker still caches the client with the key."""
    issuer, successor = issuer_of(signing), Signer(key=new_key(), key_id="two")
    assert post(http, path, signer.fields(signing.client_id, issuer)).status_code == 200
    with http.application.app_context(), on_another_worker():
        update_client(make.system(signing.organization), signing.client_id, {"jwks": successor.jwks})
    assert_refused(post(http, path, signer.fields(signing.client_id, issuer)))
    assert post(http, path, successor.fields(signing.client_id, issuer)).status_code == 200


@PATHS
def test_key_added_on_another_worker_is_accepted_immediately(
    http, make: Factory, path: str, signing: MadeClient, signer: Signer
) -> None:
    issuer, added = issuer_of(signing), Signer(key=new_key(), key_id="two")
    assert post(http, path, signer.fields(signing.client_id, issuer)).status_code == 200
    with http.application.app_context(), on_another_worker():
        jwks = {"keys": [signer.jwk, added.jwk]}
        update_client(make.system(signing.organization), signing.client_id, {"jwks": jwks})
    assert post(http, path, added.fields(signing.client_id, issuer)).status_code == 200
    assert list(client_authentication._failures) == []


@PATHS
def test_client_renamed_on_another_worker_still_authenticates(
    http, make: Factory, path: str, signing: MadeClient, signer: Signer
) -> None:
    issuer = issuer_of(signing)
    assert post(http, path, signer.fields(signing.client_id, issuer)).status_code == 200
    with http.application.app_context(), on_another_worker():
        update_client(make.system(signing.organization), signing.client_id, {"name": "Renamed"})
    assert post(http, path, signer.fields(signing.client_id, issuer)).status_code == 200


def test_request_retried_with_fresh_client_does_not_replay_its_assertion(
    http, make: Factory, signing: MadeClient, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker just allowed a scope that this worker's cached client does not have."""
    issuer, held = issuer_of(signing), ["reports:read", "reports:write"]
    assert post(http, "/oauth/token", signer.fields(signing.client_id, issuer)).status_code == 200
    with http.application.app_context(), on_another_worker(), monkeypatch.context() as elsewhere:
        elsewhere.setattr(cache_invalidation, "_renew", lambda organization_id: None)
        update_client(make.system(signing.organization), signing.client_id, {"scopes": held})
    fields = signer.fields(signing.client_id, issuer) | {"scope": "reports:write"}
    answer = post(http, "/oauth/token", fields)
    assert answer.status_code == 200, answer.text
    assert_refused(post(http, "/oauth/token", fields))


def test_failed_authentication_is_limited_without_locking_the_client(
    http, make: Factory, signing: MadeClient, signer: Signer
) -> None:
    """CA-5."""
    issuer, stranger = issuer_of(signing), Signer(key=new_key())
    wrong = stranger.fields(signing.client_id, issuer)
    statuses = [
        post(http, "/oauth/token", wrong).status_code for _ in range(client_authentication.MAX_FAILURES + 1)
    ]
    assert statuses == [401] * client_authentication.MAX_FAILURES + [429]
    assert post(http, "/oauth/token", signer.fields(signing.client_id, issuer)).status_code == 200


def test_client_with_a_key_has_no_secret(make: Factory, signing: MadeClient) -> None:
    assert signing.registered.secret is None
