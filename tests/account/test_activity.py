"""Account activity: what users see of their own account, and only of theirs."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import update

from app.extensions import db
from app.models.client import Client
from app.operations.audit.audit_events import list_activity
from app.operations.authorization.connected_apps import list_user_consents, withdraw_user_consent
from app.operations.authorization.consents import store_consent
from app.operations.clients.clients import delete_client
from app.operations.directory.lookups import find_client
from app.operations.maintenance.janitor import purge_expired
from app.operations.store import audit, clock, rows
from app.operations.store.rows import PageRequest
from app.operations.store.transactions import transaction
from app.operations.tokens.bulk_revocation import bulk_revoke
from app.operations.users.user_changes import end_user_session, list_user_sessions
from app.operations.users.users import disable_user, enable_user
from app.rules.actor import Actor
from app.rules.errors import Forbidden
from tests.account.conftest import Visitor

_CONSENT_EVENTS = ("consent.given", "consent.withdrawn")


def url(organization: Any) -> str:
    return f"/organizations/{organization.slug}/account/activity"


def herself(user: Any) -> Actor:
    home = user.organization.id
    return Actor("user", home, home, user_id=user.id)


def test_activity_shows_sign_ins_failures_and_changes_by_others(
    visitor: Visitor, app: Flask, make: Any, acme: Any, ada: Any
) -> None:
    Visitor(app).sign_in(ada, password="not hers at all")
    with app.app_context():
        disable_user(make.actor(acme), ada.id)
        enable_user(make.system(acme), ada.id)
    visitor.sign_in(ada)
    page = visitor.get(url(acme)).text
    order = [page.index(words) for words in ("Signed in<", "enabled again", "was disabled", "Sign-in failed")]
    assert order == sorted(order)
    assert page.count("Not by you") == 2 and "127.0.0.1" in page
    assert "192.0.2.7" not in page, "where an administrator sat"


def test_activity_of_another_user_is_hidden(
    visitor: Visitor, app: Flask, make: Any, acme: Any, ada: Any
) -> None:
    bob = make.user(acme)
    visitor.sign_in(ada)
    with app.app_context():
        assert list_activity(herself(bob)).items == ()
        with pytest.raises(Forbidden):
            list_activity(make.actor(acme))


def test_what_an_administrator_does_with_others_is_activity_of_theirs(
    visitor: Visitor, app: Flask, make: Any, acme: Any, ada: Any
) -> None:
    bob = make.user(acme, role="developer")
    bob_himself = herself(bob)
    Visitor(app).sign_in(bob)
    visitor.sign_in(ada)
    with app.app_context():
        admin = make.actor(acme, user=ada)
        [session] = list_user_sessions(admin, bob.public_id)
        end_user_session(admin, bob.public_id, session.public_id)
        client = make.client(acme)
        bulk_revoke(admin, acme.slug, {"client_id": client.client_id})
        transaction(
            partial(store_consent, bob_himself, find_client(client.client_id), bob.id, ("openid",), None)
        )(requested=("openid",))
        [consent] = list_user_consents(admin).items
        withdraw_user_consent(admin, consent.public_id)
        disable_user(admin, bob.id)
        assert {event.action for event in list_activity(herself(ada)).items} == {"session.started"}
        seen = {event.action: event for event in list_activity(bob_himself).items}
        assert seen.keys() == {"session.started", "session.ended", "user.disabled", *_CONSENT_EVENTS}
        assert {seen[action].client_id for action in _CONSENT_EVENTS} == {client.client_id}
        assert seen["session.ended"].by == ada.email and not seen["session.ended"].is_own


def test_activity_is_paginated(
    visitor: Visitor, app: Flask, acme: Any, ada: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(4):
        Visitor(app).sign_in(ada)
    visitor.sign_in(ada)
    with app.app_context():
        every = [event.id for event in list_activity(herself(ada)).items]
        seen, after = [], None
        while True:
            page = list_activity(herself(ada), PageRequest(2, after))
            seen += [event.id for event in page.items]
            after = page.next_cursor_key
            if after is None:
                break
    assert seen == every and len(every) >= 5
    monkeypatch.setattr(rows, "MAX_LIMIT", 2)
    first = visitor.get(url(acme)).text
    assert 'rel="next"' in first
    assert visitor.get(url(acme) + "?cursor=forged").status_code == 200


def test_activity_names_a_deleted_app(visitor: Visitor, app: Flask, make: Any, acme: Any, ada: Any) -> None:
    orchard, meadow = make.client(acme, name="Orchard"), make.client(acme, name="Meadow")
    visitor.sign_in(ada)

    @transaction
    def end_meadow() -> None:
        for client in (orchard, meadow):
            audit.record(herself(ada), "consent.given", target_type="client", target_id=client.client_id)
        delete_client(make.actor(acme), meadow.client_id)
        long_ago = update(Client).where(Client.organization_id == acme.id, Client.name == "Meadow")
        db.session.execute(long_ago.values(deleted_at=clock.now() - timedelta(days=31)))

    with app.app_context():
        end_meadow()
        assert "Access was granted to an app: Meadow" in visitor.get(url(acme)).text
        assert (purge_expired(Actor.system("", "test"), pause=0) or {})["clients"] == 1
    page = visitor.get(url(acme)).text
    assert "Access was granted to an app: Orchard" in page and "Access was granted to an app: Meadow" in page
    assert page.count("Deleted") == 1 and orchard.client_id in page
