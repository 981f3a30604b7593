"""Leaked-secret revocation with deleted organizations and interrupted processes."""

from __future__ import annotations

from typing import Any

import pytest
from flask.testing import FlaskClient

from app.operations.audit import leaked_secrets
from app.operations.clients import credential_revocation
from app.operations.clients.credentials import create_credential, list_credentials
from app.operations.organizations.organizations import delete_organization, restore_organization
from app.operations.store import outbox
from app.rules.actor import Actor
from tests.factories import Factory, basic_header
from tests.oauth.conftest import Flow, audited
from tests.support.databases import Database


def report(http: FlaskClient, token: str) -> int:
    return int(http.post("/leak-reports", json=[{"token": token}]).status_code)


class Died(BaseException):
    """The process was killed: no cleanup runs."""


@pytest.fixture
def dispatcher(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Another process, which finishes pending messages."""
    monkeypatch.setattr(outbox, "_deliveries", {})
    credential_revocation.register()

    def run() -> int:
        finished = 0
        while (message := outbox.claim_due_message(busy_receivers=(), full_organizations=())) is not None:
            outbox.deliver(message)
            finished += 1
        return finished

    return run


def test_secret_leaked_while_its_organization_was_deleted_is_revoked_after_restoration(
    flow: Flow, make: Factory, database: Database
) -> None:
    root = make.root()
    second = make.machine(flow.organization)
    form = {"grant_type": "client_credentials"}
    with flow.app.app_context():
        delete_organization(make.system(root), flow.organization.slug)
    assert report(flow.http, second.secret) == 202
    assert audited(database, "secret.leak_reported") == 1
    with flow.app.app_context():
        restore_organization(make.system(root), flow.organization.slug)
    assert flow.http.post("/oauth/token", data=form, headers=second.basic).status_code == 401
    other = make.machine(flow.organization)
    assert flow.http.post("/oauth/token", data=form, headers=other.basic).status_code == 200


@pytest.mark.parametrize("way", ["a leak report", "a revocation"])
def test_interrupted_revocation_is_finished_by_the_next_process(
    flow: Flow, make: Factory, monkeypatch: pytest.MonkeyPatch, dispatcher: Any, way: str
) -> None:
    """P3: the secret is revoked but its grants are not yet; their refresh tokens are rejected without another
    report.
    """
    make.root()
    minted = flow.tokens()
    with flow.app.app_context():
        actor = make.actor(flow.organization)
        [first] = list_credentials(actor, flow.client.client_id).items
        second = create_credential(actor, flow.client.client_id)

    def die(*_: Any) -> None:
        raise Died

    def act() -> None:
        if way == "a leak report":
            leaked_secrets.report_leaks(Actor.anonymous("", "192.0.2.1"), [{"token": flow.client.secret}])
        else:
            credential_revocation.revoke_credentials(
                actor, flow.client.client_id, credential_id=first.public_id, revoke_tokens=True
            )

    with monkeypatch.context() as fault, flow.app.app_context():
        fault.setattr(leaked_secrets, "revoke_grants_of_secrets", die)
        fault.setattr(credential_revocation, "revoke_grants_of_secrets", die)
        with pytest.raises(Died):
            act()
    with flow.app.app_context():
        assert dispatcher() == 1
    renewed = basic_header(flow.client.client_id, second.secret or "")
    answer = flow.refresh(minted["refresh_token"], headers=renewed)
    assert (answer.status_code, answer.get_json()["error"]) == (400, "invalid_grant")
