"""Client authentication: only by the registered method, with the same response for every failure."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from datetime import timedelta

import pytest
from argon2 import PasswordHasher, low_level
from flask.testing import FlaskClient
from sqlalchemy import select

from app.extensions import db
from app.models.client import Credential
from app.operations.clients import client_authentication
from app.operations.clients.clients import delete_client, update_client
from app.operations.clients.credential_revocation import revoke_credentials
from app.operations.clients.credentials import create_credential
from app.operations.directory import lookups
from app.operations.organizations.settings import update_settings
from app.operations.store import clock
from app.rules.identifiers import new_token
from tests.factories import Factory, MadeClient
from tests.oauth.conftest import SCOPES, on_another_worker

pytestmark = pytest.mark.either

GRANT = {"grant_type": "client_credentials"}
ENDPOINTS = {
    "/oauth/token": GRANT,
    "/oauth/introspect": {"token": "x"},
    "/oauth/revoke": {"token": "x"},
}
PATHS = pytest.mark.parametrize("path", ENDPOINTS)


def basic(client_id: str, secret: str) -> dict[str, str]:
    return {"Authorization": "Basic " + b64encode(f"{client_id}:{secret}".encode()).decode()}


def post(http: FlaskClient, path: str, headers: dict[str, str] | None = None, **more: str):
    return http.post(path, data=ENDPOINTS[path] | more, headers=headers)


@pytest.fixture
def machine(make: Factory) -> MadeClient:
    """A client registered for client_secret_basic."""
    return make.machine(make.organization(), "reports:read", token_endpoint_auth_method="client_secret_basic")


@pytest.fixture
def posting(make: Factory) -> MadeClient:
    """A client registered for client_secret_post."""
    return make.machine(make.organization(), "reports:read", token_endpoint_auth_method="client_secret_post")


@pytest.fixture
def public(make: Factory) -> MadeClient:
    """A client without a secret."""
    return make.client(make.organization(), type="spa", scopes=SCOPES)


def is_refused(answer) -> bool:
    return (answer.status_code, answer.get_json()["error"]) == (401, "invalid_client")


@PATHS
def test_registered_method_authenticates(http, path: str, machine: MadeClient, posting: MadeClient) -> None:
    assert post(http, path, machine.basic).status_code == 200
    assert post(http, path, client_id=posting.client_id, client_secret=posting.secret).status_code == 200


@PATHS
def test_other_method_is_rejected(http, path: str, machine: MadeClient, posting: MadeClient) -> None:
    """CA-1, CA-7: at every endpoint."""
    assert is_refused(post(http, path, client_id=machine.client_id, client_secret=machine.secret))
    assert is_refused(post(http, path, basic(posting.client_id, posting.secret)))


@PATHS
def test_error_names_the_registered_method_to_a_client_with_the_right_secret(
    http, path: str, machine: MadeClient
) -> None:
    """CA-3: only its owner knows the secret, so nobody else learns anything."""
    right = post(http, path, client_id=machine.client_id, client_secret=machine.secret)
    other = "1" if machine.secret.endswith("0") else "0"
    wrong = post(http, path, client_id=machine.client_id, client_secret=machine.secret[:-1] + other)
    assert is_refused(right) and is_refused(wrong)
    words = right.get_json()["error_description"]
    assert "client_secret_basic" in words and "client_secret_post" in words
    assert wrong.get_json()["error_description"] == "Client authentication failed."


@PATHS
def test_secret_of_a_client_without_a_chosen_method_is_accepted_in_header_and_body(
    http, make: Factory, path: str
) -> None:
    """Libraries send what their own default is."""
    client = make.machine(make.organization(), "reports:read")
    assert client.registered.client.any_secret_method
    assert post(http, path, client.basic).status_code == 200
    in_body = {"client_id": client.client_id, "client_secret": client.secret}
    assert post(http, path, **in_body).status_code == 200
    with http.application.app_context():
        system = make.system(client.organization)
        methods = {"oauth": {"clients": {"token_endpoint_auth_methods": ["client_secret_basic"]}}}
        update_settings(system, client.organization.slug, methods)
    assert post(http, path, client.basic).status_code == 200
    assert is_refused(post(http, path, **in_body))


@PATHS
def test_client_id_alone_does_not_authenticate_a_confidential_client(
    http, path: str, machine: MadeClient
) -> None:
    """CA-7: ``none`` is rejected for a client with a secret."""
    assert is_refused(post(http, path, client_id=machine.client_id))
    assert is_refused(post(http, path, client_id=machine.client_id, client_secret=""))
    assert is_refused(post(http, path, basic(machine.client_id, "")))


@PATHS
def test_two_methods_at_once_are_an_invalid_request(http, path: str, machine: MadeClient) -> None:
    """CA-1."""
    answer = post(http, path, machine.basic, client_id=machine.client_id, client_secret=machine.secret)
    assert (answer.status_code, answer.get_json()["error"]) == (400, "invalid_request")
    answer = post(http, path, machine.basic, client_secret="other")
    assert (answer.status_code, answer.get_json()["error"]) == (400, "invalid_request")


@PATHS
def test_header_and_body_must_name_the_same_client(
    http, path: str, machine: MadeClient, posting: MadeClient
) -> None:
    answer = post(http, path, machine.basic, client_id=posting.client_id)
    assert (answer.status_code, answer.get_json()["error"]) == (400, "invalid_request")
    assert post(http, path, machine.basic, client_id=machine.client_id).status_code == 200


@PATHS
def test_secret_from_a_public_client_is_rejected(http, path: str, public: MadeClient) -> None:
    """CA-1: Authlib returns 500."""
    for secret in ("x", new_token("cs", public.organization.id)):
        assert is_refused(post(http, path, client_id=public.client_id, client_secret=secret))
        assert is_refused(post(http, path, basic(public.client_id, secret)))


def test_public_client_may_revoke_but_not_introspect_or_use_client_credentials(
    http, public: MadeClient
) -> None:
    """RV-7, IT-1, CC-1: also if a library names it in the header, with an empty secret (RFC 6749 section 2.3.1)."""
    for headers, fields in ((None, {"client_id": public.client_id}), (basic(public.client_id, ""), {})):
        assert post(http, "/oauth/revoke", headers, **fields).status_code == 200
        refused = post(http, "/oauth/introspect", headers, **fields)
        assert is_refused(refused) and ("WWW-Authenticate" in refused.headers or headers is None)
        answer = post(http, "/oauth/token", headers, **fields)
        assert (answer.status_code, answer.get_json()["error"]) == (400, "unauthorized_client")


@PATHS
def test_every_failure_returns_the_same_response(
    http, make: Factory, path: str, machine: MadeClient, public: MadeClient
) -> None:
    """CA-3: unknown client; wrong, expired, foreign and malformed secrets; status, body and headers."""
    organization = machine.organization
    other = make.machine(organization, "reports:read")
    system = make.system(organization)
    with http.application.app_context():
        ended = create_credential(system, machine.client_id).secret
        found = create_credential(system, machine.client_id)
        revoke_credentials(system, machine.client_id, credential_id=found.credential.public_id)
        gone = make.machine(organization, "reports:read")
        delete_client(system, gone.client_id)
        disabled = make.machine(organization, "reports:read")
        update_client(system, disabled.client_id, {"status": "disabled"})
    set_end(http, ended)
    unknown = machine.client_id[:-1] + ("0" if machine.client_id[-1] != "0" else "1")
    headers = [
        basic(unknown, machine.secret),
        basic("nobody", "x"),
        basic("", ""),
        basic(machine.client_id, "x"),
        basic(machine.client_id, machine.secret[:-1]),
        basic(machine.client_id, new_token("cs", organization.id)),
        basic(machine.client_id, new_token("at", organization.id)),
        basic(machine.client_id, other.secret),
        basic(machine.client_id, ended),
        basic(machine.client_id, found.secret),
        basic(gone.client_id, gone.secret),
        basic(disabled.client_id, disabled.secret),
        basic(public.client_id, "x"),
    ]
    answers = [post(http, path, header) for header in headers]
    assert {answer.status_code for answer in answers} == {401}
    assert len({answer.data for answer in answers}) == 1
    names = {frozenset(name for name, _ in answer.headers if name != "X-Request-Id") for answer in answers}
    assert len(names) == 1
    assert post(http, path, machine.basic).status_code == 200


def set_end(http: FlaskClient, secret: str) -> None:
    """Set the secret to have expired one second ago by the database clock."""
    from sqlalchemy import update

    from app.extensions import db
    from app.models.client import Credential
    from app.operations.store.transactions import transaction
    from app.rules.identifiers import digest

    @transaction
    def end() -> None:
        ago = clock.now() - timedelta(seconds=1)
        db.session.execute(
            update(Credential).where(Credential.digest == digest(secret)).values(expires_at=ago)
        )

    with http.application.app_context():
        end()


@PATHS
def test_client_of_another_organization_is_unknown(
    http, make: Factory, path: str, machine: MadeClient
) -> None:
    """MX-3: byte for byte the response for an unknown client."""
    foreign = make.organization()
    there = f"/organizations/{foreign.slug}{path}"
    refused = http.post(there, data=ENDPOINTS[path], headers=machine.basic)
    unknown = http.post(there, data=ENDPOINTS[path], headers=basic("cli_nobody", machine.secret))
    assert is_refused(refused) and refused.data == unknown.data
    own = http.post(
        f"/organizations/{machine.organization.slug}{path}", data=ENDPOINTS[path], headers=machine.basic
    )
    assert own.status_code == 200


@PATHS
def test_name_of_an_unknown_organization_makes_no_difference(http, path: str, machine: MadeClient) -> None:
    """No organization can be named "oauth", which is also a part of each path."""
    for headers in ({}, machine.basic):
        unknown, named_oauth = (
            http.post(f"/organizations/{slug}{path}", data=ENDPOINTS[path], headers=headers)
            for slug in ("nowhere", "oauth")
        )
        assert unknown.status_code in {401, 404}
        assert (named_oauth.status_code, named_oauth.data) == (unknown.status_code, unknown.data)


@PATHS
def test_every_active_secret_authenticates(http, make: Factory, path: str, machine: MadeClient) -> None:
    """SE-2."""
    with http.application.app_context():
        second = create_credential(make.system(machine.organization), machine.client_id).secret
    assert post(http, path, machine.basic).status_code == 200
    assert post(http, path, basic(machine.client_id, second)).status_code == 200


@PATHS
def test_secret_check_uses_one_digest_and_no_password_hash(
    http, path: str, machine: MadeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CA-4: 256 random bits need no slow hash, which would let attackers exhaust the CPU."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a password hash")

    for name in ("hash_secret", "hash_secret_raw", "verify_secret"):
        monkeypatch.setattr(low_level, name, refuse)
    for name in ("hash", "verify"):
        monkeypatch.setattr(PasswordHasher, name, refuse)
    unknown = machine.client_id[:-1] + ("0" if machine.client_id[-1] != "0" else "1")
    assert post(http, path, machine.basic).status_code == 200
    assert is_refused(post(http, path, basic(machine.client_id, new_token("cs", machine.organization.id))))
    assert is_refused(post(http, path, basic(unknown, machine.secret)))
    with http.application.app_context():
        [stored] = db.session.scalars(select(Credential.digest)).all()
    assert stored == hashlib.sha256(machine.secret.encode()).digest()


@PATHS
def test_secret_created_on_another_worker_works_immediately(
    http, make: Factory, path: str, machine: MadeClient
) -> None:
    assert post(http, path, machine.basic).status_code == 200
    with http.application.app_context(), on_another_worker():
        second = create_credential(make.system(machine.organization), machine.client_id).secret
    assert post(http, path, basic(machine.client_id, second)).status_code == 200


@PATHS
def test_secret_revoked_on_another_worker_is_rejected_immediately(
    http, make: Factory, path: str, machine: MadeClient
) -> None:
    """F24: this worker still caches the secret as active."""
    assert post(http, path, machine.basic).status_code == 200
    with http.application.app_context(), on_another_worker():
        revoke_credentials(make.system(machine.organization), machine.client_id)
    assert is_refused(post(http, path, machine.basic))


@PATHS
@pytest.mark.parametrize(
    "change", [{"status": "disabled"}, {"token_endpoint_auth_method": "client_secret_post"}], ids=str
)
def test_client_changed_on_another_worker_is_updated_immediately(
    http, make: Factory, path: str, machine: MadeClient, change: dict[str, str]
) -> None:
    assert post(http, path, machine.basic).status_code == 200
    with http.application.app_context(), on_another_worker():
        update_client(make.system(machine.organization), machine.client_id, change)
    assert is_refused(post(http, path, machine.basic))


@PATHS
def test_secret_created_on_another_worker_is_not_counted_as_a_failure(
    http, make: Factory, path: str, machine: MadeClient
) -> None:
    """CA-5: a client that rotates often is not treated as an attacker."""
    assert post(http, path, machine.basic).status_code == 200
    with http.application.app_context(), on_another_worker():
        second = create_credential(make.system(machine.organization), machine.client_id).secret
    assert post(http, path, basic(machine.client_id, second)).status_code == 200
    assert list(client_authentication._failures) == []


def test_repeated_wrong_secrets_do_not_reach_the_database(
    http, make: Factory, machine: MadeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = basic(machine.client_id, make.machine(machine.organization).secret)
    assert {
        post(http, "/oauth/token", wrong).status_code for _ in range(client_authentication.MAX_FAILURES)
    } == {401}
    looks: list[bool] = []
    find = lookups.find_client

    def counted(client_id: str, *, fresh: bool = False):
        looks.append(fresh)
        return find(client_id, fresh=fresh)

    monkeypatch.setattr(lookups, "find_client", counted)
    assert {post(http, "/oauth/token", wrong).status_code for _ in range(5)} == {429}
    assert looks == [False] * 5
