"""Approval requests for clients: creation, decisions, and the audit events of each."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import update

from app.extensions import db
from app.models.client import ClientRequest
from app.operations.authorization import approval_requests
from app.operations.authorization.approval_requests import (
    AlreadyDecided,
    ClientChanged,
    approve_client_request,
    create_client_request,
    decline_client_request,
    get_client_request,
    list_client_requests,
)
from app.operations.clients.clients import delete_client, get_client, update_client
from app.operations.directory import lookups
from app.operations.store import clock
from app.operations.store.transactions import transaction
from app.operations.users.deletion import delete_user
from app.rules.actor import Actor
from app.rules.errors import Conflict, Forbidden, InvalidInput, NotFound, PreconditionFailed, TooManyRequests
from tests.factories import Factory, MadeClient, MadeUser
from tests.oauth.conftest import audited
from tests.support.databases import Database

Made = tuple[Any, MadeClient, MadeUser]


@pytest.fixture
def made(app: Flask, make: Factory) -> Made:
    """Create an organization, a client that requires approval, and a member."""
    organization = make.organization()
    client = make.client(organization)
    with app.app_context():
        update_client(make.actor(organization), client.client_id, {"approval": "review"})
        yield organization, client, make.user(organization)


def ask(make: Factory, made: Made, user: MadeUser | None = None, reason: str = "For work") -> None:
    organization, client, member = made
    view = lookups.find_client(client.client_id, fresh=True)
    assert view is not None
    actor = make.actor(organization, "users:read", user=user or member)
    create_client_request(actor, view, ("openid", "email"), reason)


def waiting(make: Factory, made: Made) -> list[Any]:
    return list(list_client_requests(make.actor(made[0]), filters={"status": "open"}).items)


def approval(make: Factory, made: Made) -> str | None:
    return get_client(make.actor(made[0]), made[1].client_id).approval


def test_request_names_user_scopes_and_reason(make: Factory, made: Made, database: Database) -> None:
    ask(make, made)
    [record] = waiting(make, made)
    assert (record.client_id, record.user_id, record.reason) == (
        made[1].client_id,
        made[2].public_id,
        "For work",
    )
    assert record.scopes == ("openid", "email") and record.status == "open" and record.trust == "unverified"
    assert audited(database, "client_request.created") == 1


def test_requests_for_different_clients_are_independent(make: Factory, made: Made) -> None:
    other = (made[0], make.client(made[0]), made[2])
    update_client(make.actor(made[0]), other[1].client_id, {"approval": "review"})
    ask(make, made)
    ask(make, other)
    assert {request.client_id for request in waiting(make, made)} == {made[1].client_id, other[1].client_id}


def test_approval_closes_all_requests_for_the_client(make: Factory, made: Made, database: Database) -> None:
    ask(make, made)
    for _ in range(3):
        ask(make, made, make.user(made[0]))
    approved = approve_client_request(make.actor(made[0]), waiting(make, made)[2].public_id, {})
    assert approved.status == "approved" and approved.decided_by == "tests"
    assert waiting(make, made) == [] and approval(make, made) == "allowed"
    assert get_client(make.actor(made[0]), made[1].client_id).trust == "unverified"
    assert audited(database, "client_request.approved") == 1


def test_approval_can_mark_the_client_as_reviewed(make: Factory, made: Made) -> None:
    ask(make, made)
    approve_client_request(make.actor(made[0]), waiting(make, made)[0].public_id, {"verified": True})
    assert get_client(make.actor(made[0]), made[1].client_id).trust == "verified"


def test_client_that_changed_since_it_was_shown_is_not_approved(make: Factory, made: Made) -> None:
    """Otherwise its developer could change the redirect URIs between the page and the button."""
    ask(make, made)
    [record] = waiting(make, made)
    update_client(
        make.actor(made[0]), record.client_id, {"redirect_uris": ["https://elsewhere.example/callback"]}
    )
    boss = make.actor(made[0])
    with pytest.raises(ClientChanged):
        approve_client_request(boss, record.public_id, {"client_version": record.client_version})
    assert approval(make, made) == "review" and len(waiting(make, made)) == 1
    seen = get_client_request(boss, record.public_id).client_version
    approve_client_request(boss, record.public_id, {"client_version": seen})
    assert approval(make, made) == "allowed"


def test_decline_closes_one_request(make: Factory, made: Made) -> None:
    ask(make, made)
    ask(make, made, make.user(made[0]))
    declined = decline_client_request(
        make.actor(made[0]), waiting(make, made)[0].public_id, {"message": "No need"}
    )
    assert (declined.status, declined.message) == ("declined", "No need")
    assert len(waiting(make, made)) == 1 and approval(make, made) == "review"


def test_decided_request_cannot_be_decided_again(make: Factory, made: Made, database: Database) -> None:
    ask(make, made)
    [record] = waiting(make, made)
    decline_client_request(make.actor(made[0]), record.public_id)
    for decide in (approve_client_request, decline_client_request):
        with pytest.raises(AlreadyDecided):
            decide(make.actor(made[0]), record.public_id)
    assert approval(make, made) == "review", "what was refused changed nothing"
    assert audited(database, "client_request.approved") == 0


def test_block_closes_requests_and_survives_a_late_approval(
    make: Factory, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(make, made)
    [record] = waiting(make, made)
    boss = make.actor(made[0])
    # The administrator read the client before the block.
    stale = get_client(boss, made[1].client_id)
    update_client(boss, made[1].client_id, {"approval": "blocked"})
    assert waiting(make, made) == []
    with pytest.raises(Conflict, match="blocked"):
        approve_client_request(boss, record.public_id)

    @transaction
    def reopen() -> None:
        db.session.execute(update(ClientRequest).values(is_open=True, status="open"))

    reopen()
    monkeypatch.setattr("app.operations.authorization.approval_requests.get_client", lambda *_: stale)
    with pytest.raises(PreconditionFailed):
        approve_client_request(boss, record.public_id)
    assert approval(make, made) == "blocked"


@pytest.mark.parametrize("permissions", [("clients:read",), ("clients:read", "clients:write", "users:write")])
def test_decision_requires_clients_trust(make: Factory, made: Made, permissions: tuple[str, ...]) -> None:
    ask(make, made)
    [record] = waiting(make, made)
    for decide in (approve_client_request, decline_client_request):
        with pytest.raises(Forbidden) as refused:
            decide(make.actor(made[0], *permissions), record.public_id)
        assert refused.value.permission == "clients:trust"
    with pytest.raises(Forbidden):
        list_client_requests(make.actor(made[0], "users:read"))
    approve_client_request(make.actor(made[0], "clients:trust"), record.public_id)


def test_request_of_another_organization_is_not_found(make: Factory, made: Made) -> None:
    ask(make, made)
    [record] = waiting(make, made)
    stranger = make.actor(make.organization())
    assert list_client_requests(stranger).items == ()
    for look in (get_client_request, approve_client_request, decline_client_request):
        with pytest.raises(NotFound):
            look(stranger, record.public_id)


@pytest.mark.parametrize("actor", ["system", "anonymous", "client"])
def test_only_members_can_request_approval(make: Factory, made: Made, actor: str) -> None:
    view = lookups.find_client(made[1].client_id)
    assert view is not None
    with pytest.raises(Forbidden):
        create_client_request(Actor(actor, made[0].id, made[0].id), view, ("openid",), "For work")  # type: ignore[arg-type]


def test_requests_per_user_and_day_are_limited(make: Factory, made: Made) -> None:
    organization, _, member = made
    for number in range(approval_requests.MAX_PER_USER_PER_DAY):
        ask(make, (organization, make.client(organization, name=f"App {number}"), member))
    with pytest.raises(TooManyRequests):
        ask(make, made)


def test_pending_requests_are_limited(make: Factory, made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approval_requests, "MAX_PENDING", 1)
    ask(make, made)
    with pytest.raises(TooManyRequests):
        ask(make, made, make.user(made[0]))


def test_expired_request_does_not_count_as_pending(make: Factory, made: Made, database: Database) -> None:
    ask(make, made)

    @transaction
    def age() -> None:
        db.session.execute(update(ClientRequest).values(expires_at=clock.now() - timedelta(seconds=1)))

    age()
    assert waiting(make, made) == []
    ask(make, made)
    assert len(waiting(make, made)) == 1 and database.count("client_requests") == 1


@pytest.mark.parametrize("fields", [{"verified": "yes"}, {"verify": True}, {"approval": "pre_approved"}])
def test_approval_accepts_no_other_fields(make: Factory, made: Made, fields: dict[str, Any]) -> None:
    ask(make, made)
    with pytest.raises(InvalidInput):
        approve_client_request(make.actor(made[0]), waiting(make, made)[0].public_id, fields)


def test_request_for_a_deleted_client_is_neither_listed_nor_counted(
    make: Factory, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(approval_requests, "MAX_PENDING", 1)
    ask(make, made)
    actor = make.actor(made[0])
    assert approval_requests.count_open_requests(actor) == len(waiting(make, made)) == 1
    delete_client(actor, made[1].client_id)
    assert approval_requests.count_open_requests(actor) == len(waiting(make, made)) == 0
    ask(make, (made[0], make.client(made[0], name="Another"), made[2]))


def test_reason_of_deleted_user_is_deleted(make: Factory, made: Made, database: Database) -> None:
    ask(make, made)
    delete_user(make.actor(made[0]), made[2].public_id)
    assert database.count("client_requests") == 0


def test_setting_approval_requires_clients_trust(make: Factory, made: Made) -> None:
    writer = make.actor(made[0], "clients:read", "clients:write")
    for fields in ({"approval": None}, {"approval": "blocked"}, {"approved_scopes": ["openid"]}):
        with pytest.raises(Forbidden) as refused:
            update_client(writer, made[1].client_id, fields)
        assert refused.value.permission == "clients:trust"
    update_client(writer, made[1].client_id, {"name": "Renamed"})


def test_approval_covers_only_what_was_approved(make: Factory, made: Made) -> None:
    """The approval covers this name, these URLs and these scopes. Changes need a new one."""
    update_client(make.actor(made[0]), made[1].client_id, {"approval": "allowed"})
    writer = make.actor(made[0], "clients:read", "clients:write")
    with pytest.raises(Forbidden):
        update_client(writer, made[1].client_id, {"redirect_uris": ["https://elsewhere.example/cb"]})
    update_client(writer, made[1].client_id, {"description": "For the harvest"})
