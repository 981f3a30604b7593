"""Introspection: full responses for authorized clients, an identical inactive response for others."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from sqlalchemy import update

from app.extensions import db
from app.models.token import AccessToken
from app.operations.authorization import connected_apps
from app.operations.clients.clients import delete_client, update_client
from app.operations.clients.credential_revocation import revoke_credentials
from app.operations.clients.credentials import list_credentials
from app.operations.grants import grants
from app.operations.grants.revocation import revoke_grants_of_user
from app.operations.organizations.organizations import delete_organization, update_organization
from app.operations.sign_in.sessions import end_sessions_of_user
from app.operations.store import clock
from app.operations.store.transactions import transaction
from app.operations.users.users import disable_user, enable_user
from app.rules.actor import Actor
from app.rules.identifiers import new_token
from tests.factories import Factory
from tests.oauth.conftest import FAST_KEYS, REDIRECT_URI, SCOPES, Flow, on_another_worker
from tests.oauth.failure_log import only

INACTIVE = b'{"active": false}'


def ask(flow: Flow, token: str):
    return flow.http.post("/oauth/introspect", data={"token": token}, headers=flow.client.basic)


def test_users_access_token_is_introspected_in_full(flow: Flow) -> None:
    """RFC 7662 section 2.2."""
    document = flow.tokens(scope="openid email")
    told = flow.introspect(document["access_token"])
    assert told["active"] is True
    assert (told["scope"], told["client_id"]) == ("openid email", flow.client.client_id)
    assert (told["sub"], told["username"]) == (flow.user.public_id, flow.user.email)
    assert (told["iss"], told["aud"]) == (flow.issuer, flow.issuer)
    assert (told["token_type"], told["organization_id"]) == ("Bearer", flow.organization.slug)
    assert told["exp"] - told["iat"] == 3600
    assert told["auth_time"] <= told["iat"]
    assert told["jti"].startswith("tok_")


def test_token_without_the_scope_email_does_not_tell_the_email(flow: Flow) -> None:
    """RFC 7662 section 5: the user allowed the app no email, and a pairwise ``sub`` would be useless beside it."""
    document = flow.tokens(scope="openid offline_access")
    for token in (document["access_token"], document["refresh_token"]):
        assert flow.user.email not in ask(flow, token).text
    kept = flow.tokens(scope="openid email offline_access")["refresh_token"]
    assert flow.introspect(kept)["username"] == flow.user.email
    with flow.app.app_context():
        update_client(
            flow.make.actor(flow.organization),
            flow.client.client_id,
            {"scopes": ["openid", "offline_access"]},
        )
    told = flow.introspect(kept)
    assert told["scope"] == "openid offline_access" and "username" not in told, "the client has lost it"


def test_client_token_has_the_client_as_subject(flow: Flow) -> None:
    machine = flow.make.machine(flow.organization, "reports:read")
    token = flow.http.post("/oauth/token", data={"grant_type": "client_credentials"}, headers=machine.basic)
    told = flow.http.post(
        "/oauth/introspect", data={"token": token.get_json()["access_token"]}, headers=machine.basic
    ).get_json()
    assert told["sub"] == told["client_id"] == machine.client_id
    assert "username" not in told and "auth_time" not in told


def test_refresh_token_is_introspected_by_its_client(flow: Flow) -> None:
    first = flow.tokens()
    told = flow.introspect(first["refresh_token"])
    assert (told["active"], told["sub"], told["scope"]) == (True, flow.user.public_id, " ".join(SCOPES))
    assert "token_type" not in told
    second = flow.refresh(first["refresh_token"]).get_json()
    assert ask(flow, first["refresh_token"]).data == INACTIVE, "the one before is not active, grace or not"
    assert flow.introspect(second["refresh_token"])["active"] is True


def test_token_type_hint_is_only_a_hint(flow: Flow) -> None:
    tokens = flow.tokens()
    for token in (tokens["access_token"], tokens["refresh_token"]):
        for hint in ("access_token", "refresh_token", "nonsense"):
            data = {"token": token, "token_type_hint": hint}
            told = flow.http.post("/oauth/introspect", data=data, headers=flow.client.basic).get_json()
            assert told["active"] is True


def test_forbidden_introspection_is_identical_to_an_unknown_token(flow: Flow, make: Factory) -> None:
    """IT-1, IT-2: another client, another organization, unknown, expired, malformed."""
    tokens = flow.tokens()
    other = flow.other_client()
    foreign = Flow(flow.app, flow.http, make, make.client(make.organization(settings=FAST_KEYS)), flow.user)
    for token in (tokens["access_token"], tokens["refresh_token"]):
        assert ask(other, token).data == INACTIVE
        assert ask(foreign, token).data == INACTIVE
    nonsense = [
        "x",
        "ü",
        tokens["id_token"],
        new_token("at", flow.organization.id),
        new_token("rt", "0abcd123"),
    ]
    nonsense += [
        flow.code(),
        flow.client.secret,
        "e30.e30.e30",
        "a.b.c",
        "." * 10,
        tokens["access_token"] + " ",
    ]
    answers = [ask(flow, token) for token in nonsense]
    assert {(answer.status_code, answer.data) for answer in answers} == {(200, INACTIVE)}
    assert len({tuple(sorted(name for name, _ in answer.headers)) for answer in answers}) == 1


def test_resource_can_introspect_tokens_meant_for_it(flow: Flow) -> None:
    """IT-1, TK-6."""
    organization = flow.organization
    machine = flow.make.machine(organization, "reports:read", resources=["https://api.example"])
    api = flow.make.machine(organization, "x:y", resources=["https://api.example", "https://two.example"])
    other = flow.make.machine(organization, "x:y", resources=["https://other.example"])
    answer = flow.http.post("/oauth/token", data={"grant_type": "client_credentials"}, headers=machine.basic)
    token = {"token": answer.get_json()["access_token"]}
    assert flow.http.post("/oauth/introspect", data=token, headers=api.basic).get_json()["active"] is True
    assert flow.http.post("/oauth/introspect", data=token, headers=other.basic).data == INACTIVE


def test_introspection_by_another_api_is_explained_in_its_log(flow: Flow) -> None:
    """The response is that for an unknown token, which is not recorded."""
    machine = flow.make.machine(flow.organization, "reports:read", resources=["https://api.example"])
    other = flow.make.machine(flow.organization, "x:y", resources=["https://other.example"])
    answer = flow.http.post("/oauth/token", data={"grant_type": "client_credentials"}, headers=machine.basic)
    for token in (answer.get_json()["access_token"], new_token("at", flow.organization.id)):
        asked = flow.http.post("/oauth/introspect", data={"token": token}, headers=other.basic)
        assert asked.data == INACTIVE
    entry = only(flow)
    assert (entry.client_id, entry.status, entry.error) == (other.client_id, 200, "inactive")
    assert (entry.cause, entry.received) == ("introspection_not_allowed", "https://api.example")
    assert tuple(entry.expected) == ("https://other.example",)
    assert answer.get_json()["access_token"] not in repr(entry)


def test_token_parameter_is_required(flow: Flow) -> None:
    for data in ({}, {"token": ""}):
        answer = flow.http.post("/oauth/introspect", data=data, headers=flow.client.basic)
        assert (answer.status_code, answer.get_json()["error"]) == (400, "invalid_request")


def actor(flow: Flow) -> Actor:
    return Actor("user", flow.organization.id, flow.organization.id, user_id=flow.user.id, label="ada")


def withdraw(_: Actor, flow: Flow) -> None:
    [consent] = connected_apps.list_consents(actor(flow))
    connected_apps.withdraw_consent(actor(flow), consent.id)


def expire(actor: Actor, flow: Flow) -> None:
    ago = clock.now() - timedelta(seconds=1)
    own = AccessToken.organization_id == actor.organization_id
    db.session.execute(update(AccessToken).where(own).values(expires_at=ago))


def end_grant(actor: Actor, flow: Flow) -> None:
    from sqlalchemy import select

    from app.models.grant import Grant

    for grant_id in db.session.scalars(
        select(Grant.id).where(Grant.organization_id == actor.organization_id)
    ).all():
        grants.revoke_grant_by_id(actor, grant_id, reason="test")


def revoke_one(actor: Actor, flow: Flow) -> None:
    own = AccessToken.organization_id == actor.organization_id
    db.session.execute(update(AccessToken).where(own).values(revoked_at=clock.now()))


def disable_in_a_row_alone(actor: Actor, flow: Flow) -> None:
    """Change only the row, so that code that does not check the status is caught."""
    from app.models.user import User

    db.session.execute(update(User).where(User.id == flow.user.id).values(status="disabled"))


SOURCES: dict[str, Callable[[Actor, Flow], object]] = {
    "the token itself": revoke_one,
    "its end": expire,
    "its family": end_grant,
    "its user": lambda actor, flow: disable_user(actor, flow.user.id),
    "only its user's status": disable_in_a_row_alone,
    "its user's grants": lambda actor, flow: revoke_grants_of_user(actor, flow.user.id, reason="test"),
    "its consent": withdraw,
    "the secret that minted it": lambda actor, flow: revoke_credentials(
        actor, flow.client.client_id, revoke_tokens=True
    ),
}


@pytest.mark.parametrize("end", SOURCES.values(), ids=SOURCES.keys())
def test_every_cause_of_revocation_makes_the_token_inactive(
    asking: Flow, end: Callable[[Actor, Flow], object]
) -> None:
    """IT-3: immediately, though it happened on another worker. The calling client has a second secret."""
    from app.operations.clients.credentials import create_credential

    token = asking.tokens()["access_token"]
    assert asking.is_alive(token)

    @transaction
    def act() -> None:
        end(asking.make.system(asking.organization), asking)

    with asking.app.app_context(), on_another_worker():
        (end if end is SOURCES["the secret that minted it"] else lambda *_: act())(
            asking.make.system(asking.organization), asking
        )
        second = create_credential(asking.make.system(asking.organization), asking.client.client_id).secret
    own = {"token": token}
    from base64 import b64encode

    header = "Basic " + b64encode(f"{asking.client.client_id}:{second}".encode()).decode()
    answer = asking.http.post("/oauth/introspect", data=own, headers={"Authorization": header})
    assert answer.data == INACTIVE
    assert asking.http.get("/oauth/userinfo", headers={"Authorization": f"Bearer {token}"}).status_code == 401


@pytest.mark.parametrize("change", ["disabled", "deleted"])
def test_deleting_the_client_makes_its_tokens_inactive(flow: Flow, change: str) -> None:
    """IT-3: as seen by the resource."""
    api = flow.make.machine(flow.organization, "x:y", resources=["https://api.example"])
    machine = flow.make.machine(flow.organization, "reports:read", resources=["https://api.example"])
    answer = flow.http.post("/oauth/token", data={"grant_type": "client_credentials"}, headers=machine.basic)
    token = {"token": answer.get_json()["access_token"]}
    assert flow.http.post("/oauth/introspect", data=token, headers=api.basic).get_json()["active"] is True
    system = flow.make.system(flow.organization)
    with flow.app.app_context(), on_another_worker():
        if change == "disabled":
            update_client(system, machine.client_id, {"status": "disabled"})
        else:
            delete_client(system, machine.client_id)
    assert flow.http.post("/oauth/introspect", data=token, headers=api.basic).data == INACTIVE


def test_revoking_a_secret_makes_the_client_tokens_inactive(flow: Flow) -> None:
    """IT-3: there is no grant, so only the flag on the secret decides."""
    api = flow.make.machine(flow.organization, "x:y", resources=["https://api.example"])
    machine = flow.make.machine(flow.organization, "reports:read", resources=["https://api.example"])
    answer = flow.http.post("/oauth/token", data={"grant_type": "client_credentials"}, headers=machine.basic)
    token = {"token": answer.get_json()["access_token"]}
    assert flow.http.post("/oauth/introspect", data=token, headers=api.basic).get_json()["active"] is True
    with flow.app.app_context(), on_another_worker():
        system = flow.make.system(flow.organization)
        revoke_credentials(system, machine.client_id)
        assert flow.http.post("/oauth/introspect", data=token, headers=api.basic).get_json()["active"] is True
        [secret] = list_credentials(system, machine.client_id).items
        revoke_credentials(system, machine.client_id, credential_id=secret.public_id, revoke_tokens=True)
    assert flow.http.post("/oauth/introspect", data=token, headers=api.basic).data == INACTIVE


def userinfo_status(flow: Flow, token: str) -> int:
    answer = flow.http.get("/oauth/userinfo", headers={"Authorization": f"Bearer {token}"})
    return int(answer.status_code)


def test_ending_the_session_makes_the_token_inactive(flow: Flow) -> None:
    """IT-3: without a refresh token; ``offline_access`` is meant to outlive the session."""
    online = flow.tokens(scope="openid")["access_token"]
    offline = flow.tokens()["access_token"]
    with flow.app.app_context(), on_another_worker():
        end_sessions_of_user(flow.organization.id, flow.user.id)
    assert ask(flow, online).data == INACTIVE and userinfo_status(flow, online) == 401
    assert flow.is_alive(offline) and userinfo_status(flow, offline) == 200


@pytest.mark.parametrize("form", ["opaque", "jwt"])
def test_token_is_invalid_after_its_organization_was_suspended_or_deleted(flow: Flow, form: str) -> None:
    """IT-3: a suspended organization gets no responses. After deletion and restoration, older tokens stay
    inactive.
    """
    flow.make.root()
    client = flow.other_client(access_token_format=form, trust="first_party", redirect_uris=[REDIRECT_URI])
    tokens = client.tokens()
    access, refresh = tokens["access_token"], tokens["refresh_token"]
    system, slug = flow.make.system(flow.organization), flow.organization.slug

    def become(status: str) -> None:
        with flow.app.app_context(), on_another_worker():
            if status == "deleted":
                delete_organization(system, slug)
            else:
                update_organization(system, slug, {"status": status})

    assert client.is_alive(access) and userinfo_status(flow, access) == 200
    become("suspended")
    assert userinfo_status(flow, access) == 401 and ask(client, access).status_code == 401
    become("active")
    assert client.is_alive(access) and userinfo_status(flow, access) == 200
    become("deleted")
    assert userinfo_status(flow, access) == 401
    become("active")
    assert ask(client, access).data == INACTIVE and userinfo_status(flow, access) == 401
    assert ask(client, refresh).data == INACTIVE
    assert client.refresh(refresh).get_json()["error"] == "invalid_grant"
    client.sign_in()
    assert client.is_alive(client.tokens()["access_token"]), "later tokens are active"


def test_reenabling_a_user_does_not_restore_tokens(flow: Flow) -> None:
    token = flow.tokens()["access_token"]
    system = flow.make.system(flow.organization)
    with flow.app.app_context():
        disable_user(system, flow.user.id)
        enable_user(system, flow.user.id)
    assert ask(flow, token).data == INACTIVE
