"""Authorization codes become invalid when anything they depend on is revoked before redemption."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import update

from app.extensions import db
from app.models.user import User
from app.operations.authorization import authorization_requests, connected_apps
from app.operations.clients.clients import delete_client, update_client
from app.operations.clients.credential_revocation import revoke_credentials
from app.operations.organizations.organizations import update_organization
from app.operations.sign_in.sessions import end_sessions_of_user
from app.operations.store.transactions import transaction
from app.operations.users.users import disable_user
from app.rules.actor import Actor
from tests.oauth.conftest import Flow, on_another_worker, query_of
from tests.oauth.test_claims_parameter import asking_for, claims_of, userinfo
from tests.oauth.test_code import is_refused
from tests.support.databases import Database


def withdraw(actor: Actor, flow: Flow) -> None:
    """Withdraw the user's consent; a first-party client has one only if it was asked for."""
    actor = Actor("user", flow.organization.id, flow.organization.id, user_id=flow.user.id, label="ada")
    [consent] = connected_apps.list_consents(actor)
    connected_apps.withdraw_consent(actor, consent.id)


def change_password(actor: Actor, flow: Flow) -> None:
    from app.operations.sign_in.passwords import change_password as change

    actor = Actor("user", flow.organization.id, flow.organization.id, user_id=flow.user.id, label="ada")
    change(actor, flow.user.password, "nine slow otters under the pier")


def set_status(flow: Flow, status: str) -> None:
    """Change only the row, so that code that does not check the status is caught."""

    @transaction
    def act() -> None:
        db.session.execute(update(User).where(User.id == flow.user.id).values(status=status))

    act()


Ending = Callable[[Actor, Flow], object]
ENDED: dict[str, Ending] = {
    "only the user's status is disabled": lambda actor, flow: set_status(flow, "disabled"),
    "the user is disabled": lambda actor, flow: disable_user(actor, flow.user.id),
    "the password is changed": change_password,
    "the consent is withdrawn": withdraw,
    "the user signed out": lambda actor, flow: end_sessions_of_user(flow.organization.id, flow.user.id),
    "the redirect URI is removed": lambda actor, flow: update_client(
        actor, flow.client.client_id, {"redirect_uris": ["https://orchard.example/other"]}
    ),
    "all its scopes are taken from the client": lambda actor, flow: update_client(
        actor, flow.client.client_id, {"scopes": ["email"]}
    ),
}


@pytest.mark.parametrize("end", ENDED.values(), ids=ENDED.keys())
def test_code_is_rejected_after_what_it_depends_on_was_revoked(
    flow: Flow, database: Database, end: Ending
) -> None:
    """CD-8, RU-5: also when the change was made on another worker."""
    code = flow.decide(flow.consent(prompt="consent")).headers["Location"].split("code=")[1].split("&")[0]
    assert flow.token(grant_type="authorization_code", code="warm").status_code == 400
    with flow.app.app_context(), on_another_worker():
        end(flow.make.system(flow.organization), flow)
    assert is_refused(flow.redeem(code))
    assert database.count("grants") == 0 and database.count("access_tokens") == 0


CLIENT_GONE: dict[str, Ending] = {
    "the client is disabled": lambda actor, flow: update_client(
        actor, flow.client.client_id, {"status": "disabled"}
    ),
    "the client is deleted": lambda actor, flow: delete_client(actor, flow.client.client_id),
    "the secret is revoked": lambda actor, flow: revoke_credentials(actor, flow.client.client_id),
    "the organization is suspended": lambda actor, flow: update_organization(
        actor, flow.organization.slug, {"status": "suspended"}
    ),
}


@pytest.mark.parametrize("end", CLIENT_GONE.values(), ids=CLIENT_GONE.keys())
def test_deleted_client_cannot_redeem(flow: Flow, database: Database, end: Ending) -> None:
    """CD-8: this worker's cache still has the client."""
    flow.make.root()
    code = flow.code()
    assert flow.token(grant_type="authorization_code", code="warm").status_code == 400
    with flow.app.app_context(), on_another_worker():
        end(flow.make.system(flow.organization), flow)
    answer = flow.redeem(code)
    assert (answer.status_code, answer.get_json()["error"]) == (401, "invalid_client")
    assert database.count("grants") == 0


def test_code_issued_while_its_consent_is_withdrawn_is_rejected(
    asking: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CD-8: the withdrawal expires only the codes that it finds."""
    asking.code()
    issue_code = authorization_requests.issue_code

    def withdraw_first(actor: Actor, *values: Any, **named: Any) -> None:
        withdraw(actor, asking)
        issue_code(actor, *values, **named)

    monkeypatch.setattr(authorization_requests, "issue_code", withdraw_first)
    code = query_of(asking.authorize(prompt="none"))["code"]
    assert is_refused(asking.redeem(code))


def test_scope_removed_from_the_client_is_not_granted(flow: Flow) -> None:
    claims = asking_for(userinfo={"email": None}, id_token={"email": None})
    code = flow.code(scope="openid email offline_access", claims=claims)
    earlier = flow.tokens(scope="openid offline_access", claims=claims)
    assert "email" in claims_of(flow, earlier["id_token"]) and "email" in userinfo(flow, earlier)
    with flow.app.app_context(), on_another_worker():
        changes = {"scopes": ["openid", "offline_access"]}
        update_client(flow.make.system(flow.organization), flow.client.client_id, changes)
    tokens = flow.redeem(code).get_json()
    assert tokens["scope"] == "openid offline_access"
    # Nor are its claims, whether the code was redeemed by then or not.
    for issued in (tokens, flow.refresh(earlier["refresh_token"]).get_json()):
        assert "email" not in claims_of(flow, issued["id_token"])
        assert "email" not in userinfo(flow, issued)
    assert "email" not in userinfo(flow, earlier)
