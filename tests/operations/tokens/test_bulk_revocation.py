"""Bulk revocation: permissions, cost, and deletion of an organization's revoked sessions."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import event, insert, select

from app.extensions import db
from app.models.audit import RevocationReceipt
from app.models.token import AccessToken
from app.operations.grants import grant_lists
from app.operations.grants.revocation import revoke_grants_of_user
from app.operations.maintenance.janitor import purge_expired
from app.operations.sign_in import sessions
from app.operations.sign_in.reauthentication import FreshSignInRequired
from app.operations.store import clock
from app.operations.tokens import cutoffs
from app.operations.tokens.bulk_revocation import bulk_revoke
from app.operations.tokens.revocation import list_receipts
from app.operations.tokens.revocation_subjects import MAX_COUNT
from app.rules.errors import Forbidden, NotFound
from app.rules.identifiers import new_id, public_id
from tests.factories import Factory
from tests.support.databases import Database
from tests.support.world_rows import granted


@pytest.fixture
def acme(make: Factory) -> Any:
    return make.organization("acme")


def test_own_permission_revokes_only_own_clients(app: Flask, make: Factory, acme: Any) -> None:
    """PO-1: ``tokens:revoke:own``."""
    grace = make.user(acme)
    developer = make.actor(acme, "tokens:revoke:own", "clients:read:own", "clients:write:own", user=grace)
    own, other = make.client(acme, by=developer), make.client(acme)
    with app.app_context():
        assert bulk_revoke(developer, "acme", {"client_id": own.client_id}).receipt.public_id
        theirs = granted(other, make.user(acme))
        for body in ({"client_id": other.client_id}, {"grant_id": theirs}):
            with pytest.raises(NotFound):
                bulk_revoke(developer, "acme", body)
        for body in ({"all": True}, {"user_id": grace.public_id}):
            with pytest.raises(Forbidden):
                bulk_revoke(developer, "acme", body)


def test_ending_sessions_requires_users_write(app: Flask, make: Factory, acme: Any) -> None:
    ada, admin = make.user(acme), make.user(acme, role="admin")
    revoker = make.actor(acme, "tokens:revoke")
    helper = make.actor(acme, "tokens:revoke", "users:write")
    with app.app_context():
        for body in ({"user_id": ada.public_id}, {"all": True, "include_sessions": True}):
            with pytest.raises(Forbidden) as refusal:
                bulk_revoke(revoker, "acme", body)
            assert refusal.value.permission == "users:write"
        assert bulk_revoke(revoker, "acme", {"user_id": ada.public_id, "include_sessions": False})
        assert bulk_revoke(helper, "acme", {"user_id": ada.public_id})
        with pytest.raises(Forbidden):
            bulk_revoke(helper, "acme", {"user_id": admin.public_id})


def test_other_organizations_subjects_are_not_found(
    app: Flask, make: Factory, acme: Any, database: Database
) -> None:
    """TN-2: and nothing of them changes."""
    globex = make.organization("globex")
    client, user = make.client(globex), make.user(globex)
    with app.app_context():
        _, session = sessions.start_session(globex, user.id)
        credential = client.registered.credential
        assert credential is not None
        for body in (
            {"client_id": client.client_id},
            {"credential_id": credential.public_id},
            {"user_id": user.public_id},
            {"session_id": public_id("ses", session)},
            {"grant_id": granted(client, user)},
        ):
            with pytest.raises(NotFound):
                bulk_revoke(make.actor(acme), "acme", body)
        with pytest.raises(NotFound):
            bulk_revoke(make.actor(acme), "globex", {"all": True})
    assert database.query("SELECT COUNT(*) FROM revocation_receipts") == [(0,)]


def test_other_organizations_keep_their_grants_and_a_revoked_one_its_time(
    app: Flask, make: Factory, acme: Any, database: Database
) -> None:
    globex = make.organization("globex")
    client, ada = make.client(globex), make.user(globex)
    with app.app_context():
        granted(client, ada)
        bulk_revoke(make.actor(acme), "acme", {"all": True, "include_sessions": True})
        assert len(grant_lists.list_grants(make.actor(globex)).items) == 1
        assert revoke_grants_of_user(make.actor(globex), ada.id, reason="first") == 1
        assert revoke_grants_of_user(make.actor(globex), ada.id, reason="second") == 0
    assert database.query("SELECT revoked_reason FROM grants") == [(b"first",)]


def test_organization_revocation_requires_recent_sign_in(app: Flask, make: Factory, acme: Any) -> None:
    actor = make.actor(acme, user=make.user(acme), authenticated_ago_seconds=86_000)
    with app.app_context():
        assert bulk_revoke(actor, "acme", {"all": True, "dry_run": True}).is_dry_run
        with pytest.raises(FreshSignInRequired):
            bulk_revoke(actor, "acme", {"all": True})


def test_user_is_warned_about_ending_the_own_session(app: Flask, make: Factory, acme: Any) -> None:
    from msgspec.structs import replace

    ada = make.user(acme)
    with app.app_context():
        _, session = sessions.start_session(acme, ada.id)
        actor = replace(make.actor(acme, user=ada), session_id=session)
        [warning] = bulk_revoke(
            actor, "acme", {"all": True, "include_sessions": True, "dry_run": True}
        ).warnings
        assert "sign in again" in warning
        assert bulk_revoke(actor, "acme", {"all": True, "dry_run": True}).warnings == ()


def _fill(client: Any, number: int) -> None:
    now = clock.now()
    rows = [
        {
            "organization_id": client.organization.id,
            "id": new_id(),
            "digest": new_id().bytes * 2,
            "client_id": client.registered.client.id,
            "scope": "",
            "audience": "",
            "issued_at": now,
            "expires_at": now + timedelta(hours=1),
        }
        for _ in range(number)
    ]
    for start in range(0, number, 2000):
        db.session.execute(insert(AccessToken), rows[start : start + 2000])
    db.session.commit()


def _write_statements(act: Any) -> list[str]:
    """Return the writing statements of the SQLAlchemy session during the call."""
    statements: list[str] = []

    def record(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if statement.lstrip().upper().startswith(("UPDATE", "INSERT", "DELETE")):
            statements.append(statement)

    event.listen(db.engine, "before_cursor_execute", record)
    try:
        act()
    finally:
        event.remove(db.engine, "before_cursor_execute", record)
    return statements


@pytest.mark.slow
def test_cost_does_not_depend_on_number_of_tokens(
    app: Flask, make: Factory, acme: Any, database: Database
) -> None:
    """A cutoff is set without writing any token's row, and counts stop at their maximum."""
    client = make.client(acme)
    actor = make.system(acme)
    with app.app_context():
        few = _write_statements(lambda: bulk_revoke(actor, "acme", {"all": True}))
        _fill(client, MAX_COUNT + 500)
        done: list[Any] = []
        many = _write_statements(lambda: done.append(bulk_revoke(actor, "acme", {"all": True})))
        assert done[0].receipt.counts["access_tokens"] == MAX_COUNT
    assert len(many) == len(few)
    assert database.query("SELECT COUNT(*) FROM access_tokens WHERE revoked_at IS NOT NULL") == [(0,)]


def test_revoked_sessions_are_deleted_in_batches(
    app: Flask, make: Factory, acme: Any, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SS-5: the cutoff ends the sessions. Their rows are deleted in batches, if necessary by the janitor."""
    ada = make.user(acme)
    with app.app_context():
        values = [sessions.start_session(acme, ada.id)[0] for _ in range(5)]
        assert all(map(sessions.find_session, values))
        monkeypatch.setattr(cutoffs, "start_session_cleanup", lambda: None)
        receipt = bulk_revoke(make.system(acme), "acme", {"all": True, "include_sessions": True}).receipt
        assert receipt.counts["sessions"] == 5
        [listed] = list_receipts(make.system(acme), "acme").items
        assert listed == receipt
        assert database.query("SELECT COUNT(*) FROM sessions") == [(5,)]
        assert not any(map(sessions.find_session, values))
        assert list(cutoffs.delete_cut_off_sessions(batch=2)) == [2, 2, 1]
        assert list(cutoffs.delete_cut_off_sessions(batch=2)) == []
        assert database.query("SELECT COUNT(*) FROM sessions") == [(0,)]
        sessions.start_session(acme, ada.id)
        bulk_revoke(make.system(acme), "acme", {"all": True, "include_sessions": True})
        assert (purge_expired(make.system(make.root()), pause=0) or {}).get("sessions") == 1


def test_receipt_expires_with_the_audit_retention(app: Flask, make: Factory, acme: Any) -> None:
    with app.app_context():
        bulk_revoke(make.system(acme), "acme", {"all": True})
        row = db.session.scalars(select(RevocationReceipt)).one()
        assert row.expires_at - row.created_at == timedelta(days=365)
