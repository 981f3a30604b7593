"""JWT access tokens without rows, and status lists: whatever ends a token ends it for introspection and lists."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from flask import Flask

from app.extensions import db
from app.models.client import ClientAccess, Credential
from app.models.grant import Grant
from app.models.token import AccessToken
from app.operations.authorization import connected_apps
from app.operations.clients import access_decisions, clients, credential_revocation, resources
from app.operations.directory.lookups import get_organization_by_id, touch_organization
from app.operations.grants import key_rotation, signing_keys
from app.operations.organizations import organizations
from app.operations.organizations.settings import update_settings
from app.operations.sign_in import sessions
from app.operations.store import clock
from app.operations.store.transactions import transaction
from app.operations.tokens import access_tokens
from app.operations.users import deletion, users
from app.rules.errors import InvalidInput
from app.rules.identifiers import public_id
from tests.factories import MadeClient, bearer_header
from tests.oauth import token_storage
from tests.oauth.conftest import VERIFIER, change_rows
from tests.oauth.test_bulk_revocation import revoke as bulk_revoke
from tests.oauth.token_storage import (
    API,
    Case,
    claims_of,
    exchange,
    make_exchanger,
    restore_backup,
    revoke_by_form,
)

pytestmark = pytest.mark.either
make_case = token_storage.make_case

STORAGES = ("stored", "status_list", "none")


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
        assert found["sub"] == case.flow.user.public_id
        assert case.introspect(case.issue_to_client()).get_json()["sub"] == case.machine.client_id
    assert answers[0] == answers[1] == answers[2]


def test_unstored_token_of_a_replaced_key_is_rejected(make_case: Any) -> None:
    """KY-5."""
    case = make_case("none")
    token = case.issue_to_client()
    assert case.is_alive(token)
    with case.flow.app.app_context():
        key_rotation.replace_key_immediately(case.admin, "ES256")
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


@pytest.mark.parametrize(("storage", "other"), [("none", "status_list"), ("status_list", "none")])
def test_policy_of_the_organization_decides(make_case: Any, app: Flask, storage: str, other: str) -> None:
    """Withdrawn, new tokens are stored at once, in a list if their API reads one, and an API can be saved as it is."""
    case = make_case(storage)
    with app.app_context():
        oauth = {"oauth": {"access_token": {"allow_unstored": False}}}
        update_settings(case.flow.make.system(case.flow.organization), case.flow.organization.slug, oauth)
        resources.update_resource(case.admin, case.api_id, {"name": "New", "access_token_storage": storage})
        with pytest.raises(InvalidInput):
            resources.update_resource(case.admin, case.api_id, {"access_token_storage": other})
    issued = {case.issue_to_client(): case.machine, case.issue_to_user(): case.flow.client}
    assert case.rows(AccessToken) == 2
    for token, client in issued.items():
        assert case.is_alive(token)
        revoke_by_form(case, token, client)
        assert not case.is_alive(token)


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
