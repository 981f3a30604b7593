"""Lists of active access tokens: their fields, who sees them, and revocation of a single token."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask

from app.extensions import db
from app.models.token import AccessToken
from app.operations.audit import audit_events
from app.operations.clients import clients
from app.operations.store import clock
from app.operations.store.rows import PageRequest
from app.operations.store.transactions import read
from app.operations.tokens import token_lists
from app.operations.tokens.bulk_revocation import bulk_revoke
from app.operations.tokens.revocation import revoke_token
from app.operations.tokens.tokens import find_token
from app.rules.errors import Forbidden, NotFound
from tests.factories import Factory
from tests.support.query_plans import plan_of


@pytest.fixture
def place(context: Flask, make: Factory) -> Any:
    """Return an organization, a machine client, and a token of the client in clear."""
    acme = make.organization()
    machine = make.machine(acme, "clients:read")
    http = context.test_client()
    asked = {"grant_type": "client_credentials"}
    value = http.post("/oauth/token", data=asked, headers=machine.basic).get_json()["access_token"]
    return acme, machine, value


def test_client_token_is_listed_without_its_value(make: Factory, place: Any) -> None:
    acme, machine, value = place
    (token,) = token_lists.list_tokens(make.actor(acme)).items
    assert (token.kind, token.client_id, token.user_id) == ("client", machine.client_id, None)
    assert token.scopes == ("clients:read",) and token.credential_id is not None
    assert value not in repr(token)
    for name, sent in (("client_id", machine.client_id), ("credential_id", token.credential_id)):
        assert token_lists.list_tokens(make.actor(acme), filters={name: sent}).items == (token,)
    for name, sent in (
        ("user_id", make.user(acme).public_id),
        ("client_id", make.client(acme).client_id),
        ("client_id", make.client(make.organization()).client_id),
    ):
        assert token_lists.list_tokens(make.actor(acme), filters={name: sent}).items == ()


@pytest.mark.both
def test_tokens_of_a_user_are_found_by_an_index(make: Factory, place: Any, database: Any) -> None:
    """Without statistics, SQLite preferred to read all tokens of the organization, newest first."""
    statement = token_lists._select(frozenset({"user_id"})).order_by(AccessToken.id.desc())
    bound = {"organization_id": place[0].id, "user_id": make.user(place[0]).id, "now": clock.now()}
    _, plan = plan_of(read(lambda: db.session.execute(statement, bound).all()), "FROM access_tokens")
    # MySQL joins as few rows as these in any order.
    assert "ix_access_tokens_grant" in plan or database.kind != database.engine


def test_revoked_token_is_audited_and_inactive_at_once(make: Factory, place: Any) -> None:
    acme, _, value = place
    (token,) = token_lists.list_tokens(make.actor(acme)).items
    assert find_token(value) is not None
    assert token_lists.revoke_listed_token(make.actor(acme), token.public_id).revoked_at is not None
    assert find_token(value) is None
    assert token_lists.list_tokens(make.actor(acme)).items == ()
    told = audit_events.list_audit_events(make.actor(acme)).items[0]
    assert (told.action, told.target_id) == ("token.revoked", token.public_id)
    with pytest.raises(NotFound):
        token_lists.revoke_listed_token(make.actor(acme), token.public_id)


@pytest.mark.parametrize("how", ["revoked", "all", "client disabled", "client deleted"])
def test_inactive_token_is_not_listed(make: Factory, place: Any, how: str) -> None:
    """IT-3: the list and token validation agree."""
    acme, machine, value = place
    actor = make.actor(acme)
    if how == "revoked":
        revoke_token(actor, value)
    elif how == "all":
        bulk_revoke(actor, acme.slug, {"all": True})
    elif how == "client disabled":
        clients.update_client(actor, machine.client_id, {"status": "disabled"})
    else:
        clients.delete_client(actor, machine.client_id)
    assert find_token(value) is None
    assert token_lists.list_tokens(actor).items == ()


def test_tokens_of_others_are_not_found(make: Factory, place: Any) -> None:
    """TN-2."""
    acme, _, _ = place
    (token,) = token_lists.list_tokens(make.actor(acme)).items
    elsewhere = make.actor(make.organization())
    assert token_lists.list_tokens(elsewhere).items == ()
    with pytest.raises(NotFound):
        token_lists.get_token(elsewhere, token.public_id)
    own = make.actor(acme, "tokens:read:own", "tokens:revoke:own", user=make.user(acme))
    assert token_lists.list_tokens(own).items == ()
    with pytest.raises(NotFound):
        token_lists.revoke_listed_token(own, token.public_id)
    with pytest.raises(Forbidden):
        token_lists.list_tokens(make.actor(acme, "clients:read"))


def test_next_page_continues_after_the_last(make: Factory, place: Any, context: Flask) -> None:
    acme, machine, _ = place
    for _ in range(4):
        asked = {"grant_type": "client_credentials"}
        context.test_client().post("/oauth/token", data=asked, headers=machine.basic)
    seen, after = [], None
    while True:
        page = token_lists.list_tokens(make.actor(acme), PageRequest(2, after))
        seen += [token.id for token in page.items]
        after = page.next_cursor_key
        if after is None:
            break
    assert len(seen) == 5 and seen == sorted(seen, reverse=True)
