"""JWT access tokens without rows, and status lists: whatever ends a token ends it for introspection and lists."""

from __future__ import annotations

import json
import threading
import time
import zlib
from base64 import urlsafe_b64decode
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from joserfc import jwt
from joserfc.jwk import KeySet

from app import database
from app.extensions import db
from app.fast_path import compiled_query
from app.models.client import ClientAccess, Credential
from app.models.grant import Grant
from app.models.token import AccessToken, StatusList, StatusListEntry
from app.operations.authorization import connected_apps
from app.operations.clients import access_decisions, clients, credential_revocation, resources
from app.operations.directory.lookups import (
    AuthenticatedClient,
    find_client,
    get_organization_by_id,
    touch_organization,
)
from app.operations.grants import signing_keys
from app.operations.maintenance import restore
from app.operations.organizations import organizations
from app.operations.organizations.settings import update_settings
from app.operations.sign_in import sessions
from app.operations.store import clock
from app.operations.store.transactions import transaction
from app.operations.tokens import access_tokens, published_status_lists, revocation, status_lists
from app.operations.tokens.tokens import issue_to_client
from app.operations.users import deletion, users
from app.rules.actor import Actor
from app.rules.errors import InvalidInput, NotFound
from app.rules.identifiers import public_id
from app.rules.tokens.status_lists import BOUND_SECONDS, SIZE
from tests.factories import Factory, MadeClient, bearer_header
from tests.oauth.conftest import REDIRECT_URI, VERIFIER, Flow, change_rows, clock_ago
from tests.oauth.test_bulk_revocation import revoke as bulk_revoke
from tests.support import threads
from tests.support.process import wait_until
from tests.support.threads import at_once

pytestmark = pytest.mark.either

API = "https://api.example"
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
SETTINGS = {
    "oauth": {
        "signing": {"algorithm": "ES256"},
        "access_token": {"allow_unstored": True},
        "refresh_token": {"reuse_grace_seconds": 0},
        "grant_types": ["authorization_code", "refresh_token", "client_credentials", EXCHANGE],
    }
}
STORAGES = ("stored", "status_list", "none")


@dataclass
class Case:
    """An organization whose API keeps its tokens in one way, a client with a user, and the API's own client."""

    flow: Flow
    storage: str
    machine: MadeClient
    api: MadeClient
    api_id: str
    user_token: str = ""
    refresh_token: str = ""
    code: str = ""

    @property
    def admin(self) -> Actor:
        """An administrator."""
        return self.flow.make.actor(self.flow.organization)

    def issue_to_user(self, **changes: str | None) -> str:
        """Return a token that the user allowed."""
        self.code = self.flow.code(**({"scope": "read offline_access", "resource": API} | changes))
        answer = self.flow.redeem(self.code)
        assert answer.status_code == 200, answer.text
        self.refresh_token = answer.get_json().get("refresh_token", "")
        return str(answer.get_json()["access_token"])

    def issue_to_client(self, **form: str) -> str:
        """Return a token that the machine got for itself."""
        answer = self.flow.token(self.machine.basic, grant_type="client_credentials", **form)
        assert answer.status_code == 200, answer.text
        return str(answer.get_json()["access_token"])

    def introspect(self, token: str) -> Any:
        """Return what the API learns of the token."""
        return self.flow.http.post("/oauth/introspect", data={"token": token}, headers=self.api.basic)

    def is_alive(self, token: str) -> bool:
        """Return whether introspection and, for a listed token, its status list say that it is valid."""
        answer = self.introspect(token)
        is_active = answer.status_code == 200 and answer.get_json()["active"]
        status = claims_of(token).get("status")
        assert (status is not None) == (self.storage == "status_list")
        if status is not None:
            assert is_revoked(self.flow, status["status_list"]) is not is_active
        return bool(is_active)

    def rows(self, model: Any) -> int:
        """Return how many rows the organization has in a table."""
        with self.flow.app.app_context():
            return db.session.query(model).filter_by(organization_id=self.flow.organization.id).count()


def claims_of(token: str) -> dict[str, Any]:
    payload = token.split(".")[1]
    return dict(json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4))))


def read_list(flow: Flow, uri: str, *, now: bool = True) -> dict[str, Any]:
    """Return the verified claims of a status list, as an API reads it; ``now`` does not wait until it is renewed."""
    if now:
        published_status_lists._signed.clear()
    answer = flow.http.get(uri.removeprefix("http://localhost"))
    assert answer.status_code == 200 and answer.mimetype == "application/statuslist+jwt", answer.text
    keys = KeySet.import_key_set(flow.http.get(f"{flow.issuer}/oauth/jwks").get_json())
    decoded = jwt.decode(answer.text, keys, algorithms=["ES256"])
    assert decoded.header["typ"] == "statuslist+jwt" and decoded.claims["sub"] == uri
    assert decoded.claims["exp"] > time.time()
    return dict(decoded.claims)


def is_revoked(flow: Flow, reference: dict[str, Any]) -> bool:
    """Return the token's bit (section 4.1)."""
    found = read_list(flow, reference["uri"])["status_list"]
    assert found["bits"] == 1
    lst = zlib.decompress(urlsafe_b64decode(found["lst"] + "=" * (-len(found["lst"]) % 4)))
    assert len(lst) * 8 == SIZE
    return bool(lst[reference["idx"] // 8] >> reference["idx"] % 8 & 1)


@pytest.fixture
def make_case(app: Flask, http: FlaskClient, make: Factory) -> Callable[..., Case]:
    def build(storage: str, **api: Any) -> Case:
        organization = make.organization(settings=SETTINGS)
        fields = {
            "identifier": API,
            "name": "API",
            "scopes": [{"name": "read"}],
            "access_token_format": "jwt",
            "access_token_storage": storage,
            **api,
        }
        with app.app_context():
            api_id = resources.define_resource(make.actor(organization), fields).public_id
        client = make.client(
            organization, scopes=["openid", "read", "offline_access"], redirect_uris=[REDIRECT_URI]
        )
        flow = Flow(app, http, make, client, make.user(organization))
        flow.sign_in()
        own = make.machine(organization, name="API", scopes=[], resources=[API])
        return Case(flow, storage, make.machine(organization, "read"), own, api_id)

    return build


def revoke_by_form(case: Case, token: str, client: MadeClient) -> None:
    answer = case.flow.http.post("/oauth/revoke", data={"token": token}, headers=client.basic)
    assert answer.status_code == 200, answer.text


def revoke_by_api(case: Case, token: str) -> None:
    body = {"organization_id": case.flow.organization.slug, "token_type": "access_token", "token": token}
    headers = bearer_header(case.flow.make.bearer(case.flow.organization, "tokens:revoke"))
    assert case.flow.http.post("/api/v1/revoke", json=body, headers=headers).status_code == 200


def reuse_refresh_token(case: Case) -> None:
    assert case.flow.refresh(case.refresh_token).status_code == 200
    assert case.flow.refresh(case.refresh_token).status_code == 400


def withdraw_consent(case: Case) -> None:
    [consent] = connected_apps.list_user_consents(case.admin).items
    connected_apps.withdraw_user_consent(case.admin, consent.public_id)


def revoke_secret(case: Case, client: MadeClient) -> None:
    credential_revocation.revoke_credentials(case.admin, client.client_id, revoke_tokens=True)


def end_secret_with_its_tokens(case: Case) -> None:
    past = clock.now() - timedelta(seconds=1)

    @transaction
    def act() -> None:
        touch_organization(case.flow.organization.id)

    change_rows(case.flow, Credential, expires_at=past, takes_tokens=True)
    act()
    # The secret of the API ends as well, and the API introspects with a new one.
    case.api = case.flow.make.machine(case.flow.organization, name="API", scopes=[], resources=[API])


def withdraw_access(case: Case, client: MadeClient) -> None:
    rows = db.session.query(ClientAccess).filter_by(
        organization_id=case.flow.organization.id, status="granted"
    )
    access = rows.filter_by(client_id=client.registered.client.id).one()
    access_decisions.withdraw_access(case.admin, public_id("acc", access.id))


def suspend(case: Case) -> None:
    fields = {"status": "suspended"}
    root = case.flow.make.root()
    organizations.update_organization(case.flow.make.actor(root), case.flow.organization.slug, fields)


def restore_backup(case: Case) -> None:
    case.flow.make.root()
    restore.invalidate_restored_state(block_secrets=False, reset_passwords=False)


def sign_out(case: Case) -> None:
    @transaction
    def act() -> None:
        sessions.end_sessions_of_user(case.flow.organization.id, case.flow.user.id)

    act()


def select_grant(case: Case) -> dict[str, str]:
    grant = db.session.query(Grant).filter_by(organization_id=case.flow.organization.id).one()
    return {"grant_id": public_id("grt", grant.id)}


def select_session(case: Case) -> dict[str, str]:
    grant = db.session.query(Grant).filter_by(organization_id=case.flow.organization.id).one()
    assert grant.session_id is not None
    return {"session_id": public_id("ses", grant.session_id)}


def secret_of(client: MadeClient) -> str:
    return str(client.registered.credential.public_id)


def change_client(case: Case, client: MadeClient) -> None:
    clients.update_client(case.admin, client.client_id, {"status": "disabled"})


USER_ENDS: dict[str, Callable[[Case], Any]] = {
    "revocation": lambda case: revoke_by_form(case, case.user_token, case.flow.client),
    "revocation by API": lambda case: revoke_by_api(case, case.user_token),
    "revocation of the refresh token": lambda case: revoke_by_form(
        case, case.refresh_token, case.flow.client
    ),
    "reuse of the refresh token": reuse_refresh_token,
    "reuse of the code": lambda case: case.flow.redeem(case.code, code_verifier=VERIFIER),
    "withdrawn consent": withdraw_consent,
    "disabled user": lambda case: users.disable_user(case.admin, case.flow.user.id),
    "deleted user": lambda case: deletion.delete_user(case.admin, case.flow.user.public_id),
    "disabled client": lambda case: change_client(case, case.flow.client),
    "deleted client": lambda case: clients.delete_client(case.admin, case.flow.client.client_id),
    "revoked secret": lambda case: revoke_secret(case, case.flow.client),
    "end of the secret": end_secret_with_its_tokens,
    "grant": lambda case: bulk_revoke(case.flow, **select_grant(case)),
    "session": lambda case: bulk_revoke(case.flow, **select_session(case)),
    "user": lambda case: bulk_revoke(case.flow, user_id=case.flow.user.public_id),
    "client": lambda case: bulk_revoke(case.flow, client_id=case.flow.client.client_id),
    "organization": lambda case: bulk_revoke(case.flow, all=True),
    "suspended organization": suspend,
    "restored backup": restore_backup,
}
CLIENT_ENDS: dict[str, Callable[[Case], Any]] = {
    "revocation": lambda case: revoke_by_form(case, case.user_token, case.machine),
    "revocation by API": lambda case: revoke_by_api(case, case.user_token),
    "disabled client": lambda case: change_client(case, case.machine),
    "deleted client": lambda case: clients.delete_client(case.admin, case.machine.client_id),
    "revoked secret": lambda case: revoke_secret(case, case.machine),
    "end of the secret": end_secret_with_its_tokens,
    "withdrawn access": lambda case: withdraw_access(case, case.machine),
    "client": lambda case: bulk_revoke(case.flow, client_id=case.machine.client_id),
    "organization": lambda case: bulk_revoke(case.flow, all=True),
    "suspended organization": suspend,
    "restored backup": restore_backup,
}


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("end", USER_ENDS)
def test_ended_token_of_a_user_is_rejected(make_case: Any, end: str, storage: str) -> None:
    """IT-3, P4."""
    case = make_case(storage)
    case.user_token = case.issue_to_user()
    assert case.is_alive(case.user_token)
    with case.flow.app.app_context():
        USER_ENDS[end](case)
    assert not case.is_alive(case.user_token)


@pytest.mark.parametrize("storage", STORAGES)
def test_token_ends_with_the_session_without_offline_access(make_case: Any, storage: str) -> None:
    case = make_case(storage)
    token = case.issue_to_user(scope="read")
    assert case.is_alive(token)
    with case.flow.app.app_context():
        sign_out(case)
    assert not case.is_alive(token)


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("end", CLIENT_ENDS)
def test_ended_token_of_a_client_is_rejected(make_case: Any, end: str, storage: str) -> None:
    """IT-3, P4, AC-3."""
    case = make_case(storage)
    case.user_token = case.issue_to_client()
    assert case.is_alive(case.user_token)
    with case.flow.app.app_context():
        CLIENT_ENDS[end](case)
    assert not case.is_alive(case.user_token)


@pytest.mark.parametrize("storage", STORAGES)
def test_withdrawn_access_to_an_api_for_listed_clients_ends_tokens_of_users(
    make_case: Any, storage: str
) -> None:
    """AC-3."""
    case = make_case(storage, access_policy="listed")
    token = case.issue_to_user()
    assert case.is_alive(token)
    with case.flow.app.app_context():
        withdraw_access(case, case.flow.client)
    assert not case.is_alive(token)


@pytest.mark.parametrize("storage", STORAGES)
def test_revocation_ends_only_this_token(make_case: Any, storage: str) -> None:
    """RV-6, RV-8: other tokens of the client and of the grant stay valid; repeating it changes nothing."""
    case = make_case(storage)
    own = [case.issue_to_client() for _ in range(12)]
    first = case.issue_to_user()
    second = case.flow.refresh(case.refresh_token).get_json()["access_token"]
    for _ in range(2):
        revoke_by_form(case, own[3], case.machine)
        revoke_by_form(case, first, case.flow.client)
    assert [case.is_alive(token) for token in own] == [number != 3 for number in range(12)]
    assert (case.is_alive(first), case.is_alive(second)) == (False, True)
    with case.flow.app.app_context():
        counted = db.text("SELECT COUNT(*) FROM audit_events WHERE action = :action")
        assert db.session.scalar(counted, {"action": b"token.revoked"}) == 2
    assert len({claims_of(token)["jti"] for token in own}) == 12


@pytest.mark.parametrize("storage", ["status_list", "none"])
def test_token_has_a_row_only_once_it_is_revoked(make_case: Any, storage: str) -> None:
    case = make_case(storage)
    tokens = [case.issue_to_client() for _ in range(5)] + [case.issue_to_user()]
    assert all(case.is_alive(token) for token in tokens)
    assert case.rows(AccessToken) == 0
    assert (case.rows(StatusListEntry) > 0) == (storage == "status_list")
    revoke_by_form(case, tokens[0], case.machine)
    assert case.rows(AccessToken) == 1


def test_indexes_are_used_once_and_blocks_grow(make_case: Any) -> None:
    case = make_case("status_list")
    with case.flow.app.app_context():
        client = find_client(case.machine.client_id)
        assert client is not None
        taken = {
            status_lists.take_index_for_client(client, None, scope="", audience=API, lifetime_seconds=60)
            for _ in range(50)
        }
        taken |= {status_lists.take_index(client.organization) for _ in range(300)}
        other = case.flow.make.organization()
        status_lists.take_index(other)
        assert db.session.query(StatusList).filter_by(organization_id=other.id).count() == 1
    assert len(taken) == 350 and case.rows(StatusList) == 1
    assert case.rows(StatusListEntry) == 3  # blocks of 8, 32 and 128


def test_threads_never_take_the_same_index(make_case: Any) -> None:
    case = make_case("status_list")
    taken: list[Any] = []

    def take() -> None:
        client = find_client(case.machine.client_id)
        assert client is not None
        for _ in range(40):
            taken.append(status_lists.take_index(client.organization))
            taken.append(
                status_lists.take_index_for_client(client, None, scope="", audience=API, lifetime_seconds=60)
            )

    assert at_once(case.flow.app, [take] * 8) == ["NoneType"] * 8
    assert len(taken) == len(set(taken)) == 640


def test_token_is_revoked_once_by_simultaneous_requests(make_case: Any) -> None:
    """RV-8: each of them stores the row that the token did not have."""
    case = make_case("none")
    token = case.issue_to_client()
    actor = case.flow.make.actor(case.flow.organization)
    results = at_once(case.flow.app, [lambda: revocation.revoke_token(actor, token)] * 6)
    assert sorted(results) == ["NoneType"] * 5 + ["RevokedToken"]
    assert not case.is_alive(token) and case.rows(AccessToken) == 1


def test_tokens_after_a_cutoff_are_valid(make_case: Any) -> None:
    """The block from before the cutoff is not used any more."""
    case = make_case("status_list")
    before = case.issue_to_client()
    bulk_revoke(case.flow, client_id=case.machine.client_id)
    after = case.issue_to_client()
    assert (case.is_alive(before), case.is_alive(after)) == (False, True)


@pytest.mark.parametrize(("age", "is_kept"), [(0, False), (120, True)])
def test_block_in_use_when_its_secret_was_revoked_ends(make_case: Any, age: int, is_kept: bool) -> None:
    """A worker that did not know of the revocation may have issued some of its tokens later."""
    case = make_case("status_list")
    secret = case.machine.registered.credential
    with case.flow.app.app_context():
        client = find_client(case.machine.client_id)
        assert client is not None and secret is not None
        machine = AuthenticatedClient(client, secret.id)
        before = issue_to_client(machine, ("read",)).access_token
        change_rows(case.flow, StatusListEntry, issued_at=clock_ago(case.flow, age))
        credential_revocation.revoke_credentials(case.admin, case.machine.client_id)
        after = issue_to_client(machine, ("read",)).access_token
    assert [case.introspect(token).get_json()["active"] for token in (before, after)] == [True, False]
    assert is_revoked(case.flow, claims_of(before)["status"]["status_list"]) is not is_kept
    assert is_kept or not case.is_alive(after)


def test_tokens_after_a_restore_are_in_another_list(make_case: Any) -> None:
    """BK-2: rows of tokens in the old list may be lost, so all of it is revoked."""
    case = make_case("status_list")
    before = case.issue_to_client()
    with case.flow.app.app_context():
        restore_backup(case)
    after = case.issue_to_client()
    uris = [claims_of(token)["status"]["status_list"]["uri"] for token in (before, after)]
    assert uris[0] != uris[1]
    assert is_revoked(case.flow, {"uri": uris[0], "idx": SIZE - 1})
    assert case.is_alive(after)


def test_shortened_consent_ends_listed_and_unstored_tokens(make_case: Any) -> None:
    for storage in ("status_list", "none"):
        case = make_case(storage)
        token = case.issue_to_user()
        change_rows(case.flow, Grant, expires_at=clock_before(case))
        assert not case.is_alive(token)


def clock_before(case: Case) -> Any:
    with case.flow.app.app_context():
        return clock.now() - timedelta(seconds=1)


def test_introspection_describes_unstored_tokens(make_case: Any) -> None:
    answers = []
    for storage in STORAGES:
        case = make_case(storage)
        found = case.introspect(case.issue_to_user()).get_json()
        assert found["exp"] - found["iat"] == 600
        answers.append(set(found) | {found["scope"], found["token_type"], found["aud"]})
        assert (found["sub"], found["username"]) == (case.flow.user.public_id, case.flow.user.email)
        assert case.introspect(case.issue_to_client()).get_json()["sub"] == case.machine.client_id
    assert answers[0] == answers[1] == answers[2]


def test_unstored_token_of_a_replaced_key_is_rejected(make_case: Any) -> None:
    """KY-5."""
    case = make_case("none")
    token = case.issue_to_client()
    assert case.is_alive(token)
    with case.flow.app.app_context():
        signing_keys.replace_key_immediately(case.admin, "ES256")
    assert not case.is_alive(token)


def test_unstored_token_of_another_installation_is_rejected(
    make_case: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An imported organization has its keys, but knows of no revocation."""
    case = make_case("none")
    token = case.issue_to_client()
    assert case.is_alive(token)
    config = case.flow.app.config["GATEHOUSE"]
    monkeypatch.setitem(case.flow.app.config, "GATEHOUSE", replace(config, secret_key=b"n" * 32))
    assert not case.is_alive(token)


@pytest.mark.parametrize("storage", STORAGES)
def test_claims_of_the_user_are_not_taken_for_those_of_the_service(
    make_case: Any, storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OI-2."""
    own = {"status": "gold", "unstored": "x"}
    monkeypatch.setattr(access_tokens, "load_app_claims", lambda *_: dict(own))
    case = make_case(storage)
    token = case.issue_to_user()
    assert case.introspect(token).get_json()["active"]
    claims = claims_of(token)
    assert (claims.get("status") == "gold") == (storage == "stored") and claims.get("unstored") != "x"
    revoke_by_form(case, token, case.flow.client)
    assert not case.introspect(token).get_json()["active"]


@pytest.mark.parametrize("storage", STORAGES)
def test_jwt_that_would_be_too_long_to_revoke_is_refused(
    make_case: Any, storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RV-6: introspection and revocation take it for none."""
    case = make_case(storage)
    length, own = len(case.issue_to_user()), {"groups": ""}
    monkeypatch.setattr(access_tokens, "load_app_claims", lambda *_: dict(own))
    # Four characters of the JWT are three of the claims.
    own["groups"] = "x" * ((access_tokens.MAX_JWT_LENGTH - length) * 3 // 4 - 60)
    token = case.issue_to_user()
    assert access_tokens.MAX_JWT_LENGTH - 100 < len(token) <= access_tokens.MAX_JWT_LENGTH
    assert case.is_alive(token)
    own["groups"] += "x" * 100
    answer = case.flow.redeem(case.flow.code(scope="read offline_access", resource=API))
    assert (answer.status_code, answer.get_json()["error"]) == (400, "invalid_scope"), answer.text
    assert "fewer scopes or resources" in answer.get_json()["error_description"]


def test_forged_unstored_tokens_are_rejected(make_case: Any, app: Flask) -> None:
    """KY-4, TK-6: changed claims, another encoding, other keys, the marker of another token."""
    case = make_case("none")
    token, other = case.issue_to_client(), case.issue_to_client()
    header, payload, signature = token.split(".")
    forged = [
        f"{header}.{other.split('.')[1]}.{signature}",
        f"{token}=",
        f"{header}.{payload}.{signature[:-1]}" + ("B" if signature[-1] != "B" else "C"),
        f"{header}.{payload}.",
    ]
    claims = claims_of(token)
    with app.app_context():
        organization = get_organization_by_id(case.flow.organization.id)
        for changes, token_type in (
            ({"unstored": claims_of(other)["unstored"]}, "at+jwt"),
            ({"unstored": "AAAA"}, "at+jwt"),
            ({"jti": claims_of(other)["jti"]}, "at+jwt"),
            ({"iss": "https://other.example"}, "at+jwt"),
            ({"exp": int(time.time()) - 1}, "at+jwt"),
            ({}, "JWT"),
        ):
            forged.append(
                signing_keys.sign_jwt(organization, "ES256", claims | changes, token_type=token_type)
            )
    assert [value for value in forged if case.introspect(value).get_json()["active"]] == []
    assert case.is_alive(token)


def test_other_organization_knows_nothing_of_token_and_list(make_case: Any) -> None:
    """TN-6."""
    case, foreign = make_case("status_list"), make_case("status_list")
    token = case.issue_to_client()
    assert foreign.introspect(token).get_json() == {"active": False}
    revoke_by_form(foreign, token, foreign.machine)
    assert case.is_alive(token)
    path = claims_of(token)["status"]["status_list"]["uri"].rpartition("/")[2]
    for known in (path, "stl_00000000000000000000000000", "x"):
        answer = case.flow.http.get(
            f"/organizations/{foreign.flow.organization.slug}/oauth/status-lists/{known}"
        )
        assert answer.status_code == 404


def test_userinfo_needs_a_stored_token(make_case: Any) -> None:
    """A token for the API and userinfo has a row, and is in the list all the same."""
    case = make_case("status_list")
    token = case.issue_to_user(scope="openid read")
    assert case.rows(AccessToken) == 1 and case.is_alive(token)
    answer = case.flow.http.get("/oauth/userinfo", headers=bearer_header(token))
    assert answer.status_code == 200
    revoke_by_form(case, token, case.flow.client)
    assert case.flow.http.get("/oauth/userinfo", headers=bearer_header(token)).status_code == 401
    assert not case.is_alive(token)
    # A token for the API only is not accepted there.
    only = case.issue_to_user(scope="read")
    assert case.flow.http.get("/oauth/userinfo", headers=bearer_header(only)).status_code == 403


def make_exchanger(case: Case) -> MadeClient:
    grant = {"grant_types": [EXCHANGE], "token_exchange": "delegation"}
    exchanger = case.flow.make.machine(case.flow.organization, "read", resources=[API], **grant)
    with case.flow.app.app_context():
        access_decisions.give_access(case.admin, case.api_id, exchanger.client_id, {"scopes": ["read"]})
    return exchanger


def exchange(case: Case, exchanger: MadeClient, subject: str) -> str:
    kind = "urn:ietf:params:oauth:token-type:access_token"
    answer = case.flow.token(
        exchanger.basic, grant_type=EXCHANGE, subject_token=subject, subject_token_type=kind
    )
    assert answer.status_code == 200, answer.text
    return str(answer.get_json()["access_token"])


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("of_client", [True, False])
def test_exchanged_token_ends_with_its_subject(make_case: Any, storage: str, of_client: bool) -> None:
    """RFC 8693: the subject gets its row when a token is exchanged for it."""
    case = make_case(storage)
    subject = case.issue_to_client() if of_client else case.issue_to_user()
    exchanged = exchange(case, make_exchanger(case), subject)
    assert case.is_alive(subject) and case.is_alive(exchanged)
    revoke_by_form(case, subject, case.machine if of_client else case.flow.client)
    assert not case.is_alive(subject) and not case.is_alive(exchanged)


def test_list_is_repeated_for_seconds_only(make_case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Section 8: the bound of a revocation counts what the service, HTTP caches and readers repeat."""
    case = make_case("status_list")
    reference = claims_of(case.issue_to_client())["status"]["status_list"]
    path = reference["uri"].removeprefix("http://localhost")
    claims = read_list(case.flow, reference["uri"])
    assert claims["exp"] - claims["iat"] == 300
    assert published_status_lists.BUILT_SECONDS + 5 + claims["ttl"] == BOUND_SECONDS == 20
    # An hour, so that no delay of this machine counts.
    monkeypatch.setattr(published_status_lists, "BUILT_SECONDS", 3600)
    first = case.flow.http.get(path)
    assert first.headers["Cache-Control"] == "public, max-age=5"
    assert first.headers["Access-Control-Allow-Origin"] == "*"
    assert case.flow.http.get(path).text == first.text
    [(key, (made, signed))] = published_status_lists._signed._values.items()
    published_status_lists._signed._values[key] = (made - timedelta(seconds=3601), signed)
    assert case.flow.http.get(path).text != first.text


def test_metadata_names_the_lists(make_case: Any) -> None:
    """Section 9."""
    case = make_case("status_list")
    uri = claims_of(case.issue_to_client())["status"]["status_list"]["uri"]
    metadata = case.flow.http.get(f"{case.flow.issuer}/.well-known/openid-configuration").get_json()
    answer = case.flow.http.get(metadata["status_list_aggregation_endpoint"].removeprefix("http://localhost"))
    assert answer.get_json() == {"status_lists": [uri]}


def test_policy_of_the_organization_decides(make_case: Any, app: Flask) -> None:
    """Withdrawn, new tokens are stored at once, and an API can be saved with what it has."""
    case = make_case("none")
    with app.app_context():
        oauth = {"oauth": {"access_token": {"allow_unstored": False}}}
        update_settings(case.flow.make.system(case.flow.organization), case.flow.organization.slug, oauth)
        resources.update_resource(case.admin, case.api_id, {"name": "New", "access_token_storage": "none"})
        with pytest.raises(InvalidInput):
            resources.update_resource(case.admin, case.api_id, {"access_token_storage": "status_list"})
    case.issue_to_client()
    assert case.rows(AccessToken) == 1


def test_unlisted_tokens_are_short_lived(make_case: Any) -> None:
    case = make_case("none")
    with case.flow.app.app_context():
        oauth = {"oauth": {"access_token": {"jwt_ttl_seconds": 3600}}}
        update_settings(case.flow.make.system(case.flow.organization), case.flow.organization.slug, oauth)
    claims = claims_of(case.issue_to_client())
    assert claims["exp"] - claims["iat"] == 600


@pytest.mark.parametrize("storage", ["stored", "status_list"])
def test_tokens_for_an_unlisted_and_another_api_are_short_lived(make_case: Any, storage: str) -> None:
    """The one without a list learns of no revocation, whatever the other one does."""
    case = make_case("none")
    other = {
        "identifier": f"{API}/other",
        "name": "Other",
        "access_policy": "open",
        "scopes": [{"name": "write"}],
    }
    settings = {
        "access_token_format": "jwt",
        "access_token_storage": storage,
        "access_token_ttl_seconds": 3600,
    }
    with case.flow.app.app_context():
        resources.define_resource(case.admin, other | settings)
    for asked, seconds in (([API, other["identifier"]], 600), ([other["identifier"]], 3600)):
        form = {"grant_type": "client_credentials", "resource": asked}
        answer = case.flow.http.post("/oauth/token", data=form, headers=case.machine.basic)
        assert answer.get_json()["expires_in"] == seconds, answer.text


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"access_token_storage": "none", "access_token_ttl_seconds": 601}, "access_token_ttl_seconds"),
        ({"access_token_storage": "none", "access_token_format": "opaque"}, "access_token_storage"),
        ({"access_token_storage": "status_list", "access_token_format": None}, "access_token_storage"),
        ({"access_token_storage": "maybe"}, "access_token_storage"),
    ],
)
def test_incoherent_storage_is_refused(make_case: Any, fields: dict[str, Any], field: str) -> None:
    case = make_case("stored")
    with case.flow.app.app_context(), pytest.raises(InvalidInput) as refused:
        resources.update_resource(case.admin, case.api_id, fields)
    assert [error.field for error in refused.value.errors] == [field]


def test_list_that_a_failover_lost_is_stored_again(make_case: Any) -> None:
    case = make_case("status_list")
    case.issue_to_user()

    @transaction
    def lose() -> None:
        db.session.query(StatusList).filter_by(organization_id=case.flow.organization.id).delete()

    with case.flow.app.app_context():
        lose()
        organization = get_organization_by_id(case.flow.organization.id)
        filling = status_lists._filling.get(organization.id)
        assert filling is not None and filling.stored_at is not None
        filling.stored_at -= timedelta(minutes=2)
    token = case.issue_to_user()
    assert case.rows(StatusList) == 1 and case.is_alive(token)


def test_process_without_a_list_starts_one(make_case: Any) -> None:
    """As one that was forked: it does not know which indexes its parent gives out."""
    case = make_case("status_list")
    case.issue_to_user()
    status_lists._filling.clear()
    case.issue_to_user()
    assert case.rows(StatusList) == 2


def test_threads_with_and_without_a_transaction_start_a_list_together(
    make_case: Any, app: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On SQLite one has the turn to write and the other waits for it: neither may keep what the other needs."""
    monkeypatch.setattr(database, "POOL_WAIT_SECONDS", 10)
    case = make_case("status_list")
    taken: list[Any] = []
    has_turn, is_over = threading.Event(), threading.Event()
    writers = app.extensions[database._WRITERS]

    @transaction
    def take() -> None:
        has_turn.set()
        wait_until(lambda: writers is None or writers.waiting or is_over.is_set(), "the other thread")
        taken.append(status_lists.take_index(get_organization_by_id(case.flow.organization.id)))

    def take_for_client() -> None:
        client = find_client(case.machine.client_id)
        assert client is not None and has_turn.wait(60)
        try:
            taken.append(
                status_lists.take_index_for_client(client, None, scope="", audience=API, lifetime_seconds=60)
            )
        finally:
            is_over.set()

    monkeypatch.setattr(threads, "ATTEMPTS", 1)
    assert at_once(app, [take, take_for_client]) == ["NoneType"] * 2
    assert len(set(taken)) == 2 and case.rows(StatusList) == 1


@pytest.mark.parametrize("fails", [False, True])
def test_list_of_a_transaction_is_stored_whether_that_commits_or_not(make_case: Any, fails: bool) -> None:
    """In one that was rolled back its row was lost, so the next token stores it."""
    case = make_case("status_list")

    @transaction
    def take() -> None:
        status_lists.take_index(get_organization_by_id(case.flow.organization.id))
        if fails:
            raise NotFound("No.")

    with case.flow.app.app_context():
        with pytest.raises(NotFound) if fails else nullcontext():
            take()
        assert fails or case.rows(StatusList) == 1
    assert case.is_alive(case.issue_to_user())
    assert case.rows(StatusList) == 1


def test_list_reads_the_parents_of_exchanged_tokens_together(
    make_case: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anyone may read a list, so its price must not grow with each exchanged token."""
    case = make_case("status_list")
    exchangers = [make_exchanger(case) for _ in range(2)]
    subjects = [case.issue_to_user() for _ in range(4)]

    def exchange_twice(subject: str) -> list[str]:
        first = exchange(case, exchangers[0], subject)
        return [first, exchange(case, exchangers[1], first)]

    asked: list[str] = []
    run = compiled_query._run

    def note(driver: Any, compiled: Any, *values: Any, **options: Any) -> Any:
        asked.append(compiled.sql)
        return run(driver, compiled, *values, **options)

    def count(reference: dict[str, Any]) -> int:
        is_revoked(case.flow, reference)
        asked.clear()
        assert not is_revoked(case.flow, reference)
        return len(asked)

    monkeypatch.setattr(compiled_query, "_run", note)
    chains = [exchange_twice(subjects[0])]
    reference = claims_of(subjects[0])["status"]["status_list"]
    alone = count(reference)
    chains += [exchange_twice(subject) for subject in subjects[1:]]
    assert count(reference) == alone
    revoke_by_form(case, subjects[1], case.flow.client)
    assert [case.is_alive(token) for chain in chains for token in chain] == [True] * 2 + [False] * 2 + [
        True
    ] * 4
