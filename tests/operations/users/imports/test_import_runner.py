"""Running imports: one part at a time, never twice, alternating between organizations."""

from __future__ import annotations

import io
from typing import Any

import pytest
from flask import Flask
from msgspec.structs import replace
from sqlalchemy import select, update

from app.extensions import db
from app.models.client import Client
from app.models.organization import Organization
from app.models.token import AccessToken
from app.models.user import User, UserImport, UserImportPart, UserImportRefusal
from app.operations.clients.clients import update_client
from app.operations.directory.users import find_user_by_email
from app.operations.maintenance.janitor import purge_expired
from app.operations.organizations import organizations
from app.operations.sign_in.actor_access import enter_organization
from app.operations.sign_in.sessions import find_session, start_session
from app.operations.store import clock
from app.operations.store.transactions import transaction
from app.operations.tokens.revocation import revoke_token
from app.operations.tokens.tokens import actor_of_token, find_management_token
from app.operations.users import import_records, import_runner, import_uploads
from app.operations.users.import_batches import ImportSuperseded, process_next_part
from app.operations.users.user_changes import end_user_session
from app.rules.actor import Actor
from app.rules.errors import Conflict, NotFound
from app.rules.identifiers import public_id
from app.rules.sign_in.imported_hashes import parse_hash
from tests.support.caches import clear_directory_cache
from tests.support.importing import admin, begin, bring_in, counts, events, imported, stored, user_rows
from tests.support.user_tokens import user_token

pytestmark = pytest.mark.usefixtures("context")


def test_lost_permission_stops_the_import(make: Any) -> None:
    acme = make.organization()
    leaving = make.user(acme, role="admin")
    actor = make.actor(acme, user=leaving)
    record = begin(actor, user_rows(600))
    assert process_next_part(import_runner._find_row(actor, record.public_id))
    db.session.execute(update(User).where(User.id == leaving.id).values(status="disabled"))
    db.session.commit()
    ended = import_runner.run_import(admin(make, acme), record.public_id)
    assert counts(ended) == ("failed", 250, 0, 0, 0)
    assert "no longer" in (ended.failure or "")
    assert stored(UserImportPart) == 0
    assert [event.after["reason"] for event in events(acme, "user_import.failed")] == [ended.failure]


def test_client_that_lost_its_scope_stops_the_import(make: Any) -> None:
    acme = make.organization()
    machine = make.machine(acme).registered.client
    actor = Actor(
        "client", acme.id, acme.id, permissions=frozenset({"users:read", "users:write"}), client_id=machine.id
    )
    assert bring_in(actor, user_rows(2)).created == 2
    record = begin(actor, "email\nlate@users.example\n")
    db.session.execute(update(Client).where(Client.id == machine.id).values(status="disabled"))
    db.session.commit()
    assert import_runner.run_import(admin(make, acme), record.public_id).status == "failed"
    root = make.root()
    of_root = make.machine(root, "users:read", "users:write", "organizations:write")
    actor = replace(actor, home_organization_id=root.id, client_id=of_root.registered.client.id)
    record = begin(actor, "email\nlate@users.example\n")
    update_client(make.system(root), of_root.client_id, {"scopes": ["users:read", "users:write"]})
    ended = import_runner.run_import(admin(make, acme), record.public_id)
    assert ended.status == "failed", "it may not act here any more"


@pytest.mark.parametrize("ended", ["the sign-in", "all sign-ins", "the token"])
def test_revoking_the_session_or_token_stops_the_import(context: Flask, make: Any, ended: str) -> None:
    """RV-5: permissions are checked live, and so is the credential."""
    acme = make.organization()
    user = make.user(acme, role="admin")
    boss = admin(make, acme)
    if ended == "the token":
        bearer = user_token(context, make, user)
        found = find_management_token(bearer)
        assert found is not None
        actor, _ = actor_of_token(found, ip_address=None, request_id=None)
    else:
        session = find_session(make.sign_in(user).token)
        assert session is not None
        actor = session.actor()
    record = begin(actor, user_rows(600))
    assert process_next_part(import_runner._find_row(boss, record.public_id))
    if ended == "the token":
        assert revoke_token(boss, bearer) is not None
    elif ended == "the sign-in":
        assert actor.session_id is not None
        end_user_session(boss, public_id("usr", user.id), public_id("ses", actor.session_id))
    else:
        db.session.execute(update(Organization).values(sessions_not_before=clock.now()))
        db.session.commit()
        clear_directory_cache()
    over = import_runner.run_import(boss, record.public_id)
    assert counts(over) == ("failed", 250, 0, 0, 0)
    assert over.failure and ("has ended" in over.failure or "was revoked" in over.failure)
    assert imported() == 250 and stored(UserImportPart) == 0


@pytest.mark.parametrize("is_of_root", [False, True])
def test_import_goes_on_when_its_user_signs_in_again(
    context: Flask, make: Any, is_of_root: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the page of the import asks for, or any other page that needs a recent sign-in."""
    monkeypatch.setattr(import_runner, "_MOVE_SECONDS", 0)
    root, acme = make.root(), make.organization()
    home = root if is_of_root else acme
    user = make.user(home, role="admin")
    cookie = make.sign_in(user).token
    session = find_session(cookie)
    assert session is not None
    actor, _ = enter_organization(session.actor(), acme.slug)
    record = begin(actor, user_rows(600))
    boss = admin(make, acme)
    assert process_next_part(import_runner._find_row(boss, record.public_id))
    read_before = import_runner._find_row(boss, record.public_id)
    transaction(start_session)(home, user.id, replaces=cookie)
    assert find_session(cookie) is None
    import_runner._process(read_before)
    assert counts(import_runner.run_import(boss, record.public_id)) == ("done", 600, 0, 0, 0)


def test_expired_token_does_not_stop_the_import(context: Flask, make: Any) -> None:
    acme = make.organization()
    user = make.user(acme, role="admin")
    bearer = user_token(context, make, user)
    found = find_management_token(bearer)
    assert found is not None
    actor, _ = actor_of_token(found, ip_address=None, request_id=None)
    record = begin(replace(actor, token_expires_at=clock.now()), user_rows(10))
    db.session.execute(update(AccessToken).values(expires_at=clock.now()))
    db.session.commit()
    assert counts(import_runner.run_import(admin(make, acme), record.public_id)) == ("done", 10, 0, 0, 0)


@pytest.mark.parametrize("is_deleted", [False, True])
def test_suspended_or_deleted_organization_stops_the_import(make: Any, is_deleted: bool) -> None:
    root, acme = make.root(), make.organization()
    record = begin(admin(make, acme), user_rows(2))
    if is_deleted:
        organizations.delete_organization(make.actor(acme), acme.slug)
    else:
        organizations.update_organization(make.actor(root), acme.slug, {"status": "suspended"})
    assert import_runner.process_due_imports(make.system(root), holder="tests") == 1
    organizations.restore_organization(make.actor(root), acme.slug)
    ended = import_records.get_import(admin(make, acme), record.public_id)
    assert (ended.status, ended.failure) == ("failed", "The organization is suspended or deleted.")
    assert find_user_by_email(acme.id, "p0@users.example") is None


def test_part_is_imported_once(make: Any) -> None:
    acme = make.organization()
    actor = admin(make, acme)
    record = begin(actor, user_rows(600))
    stale = import_runner._find_row(actor, record.public_id)
    assert process_next_part(stale)
    with pytest.raises(ImportSuperseded):
        process_next_part(stale)
    assert imported() == 250
    assert counts(import_runner.run_import(actor, record.public_id)) == ("done", 600, 0, 0, 0)
    assert imported() == 600 == len(events(acme, "user.imported"))


def test_cancelled_import_stops(make: Any) -> None:
    acme = make.organization()
    actor = admin(make, acme)
    record = begin(actor, user_rows(600))
    process_next_part(import_runner._find_row(actor, record.public_id))
    assert import_records.cancel_import(actor, record.public_id).status == "cancelled"
    with pytest.raises(Conflict):
        import_records.cancel_import(actor, record.public_id)
    assert counts(import_runner.run_import(actor, record.public_id)) == ("cancelled", 250, 0, 0, 0)
    assert imported() == 250 and stored(UserImportPart) == 0
    assert [event.after["created"] for event in events(acme, "user_import.cancelled")] == [250]


def test_worker_alternates_between_organizations(make: Any) -> None:
    make.root()
    acme, globex = make.organization(), make.organization()
    first = begin(admin(make, acme), user_rows(1000))
    second = begin(admin(make, globex), user_rows(10))
    alone = begin(admin(make, acme), user_rows(10), is_foreground=True)
    seen: list[str] = []
    import app.operations.users.import_runner as module

    def note(job: Any) -> bool:
        seen.append(job.organization_id)
        return process_next_part(job)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "process_next_part", note)
        assert import_runner.process_due_imports(Actor.system("", "tests"), holder="tests") == 5
    assert seen[:2] == [acme.id, globex.id]
    assert import_records.get_import(admin(make, acme), first.public_id).status == "done"
    assert import_records.get_import(admin(make, globex), second.public_id).status == "done"
    assert import_records.get_import(admin(make, acme), alone.public_id).status == "running"


def test_unexpected_error_fails_only_one_import(make: Any) -> None:
    acme, globex = make.organization(), make.organization()
    broken = begin(admin(make, acme), user_rows(2))
    db.session.execute(
        update(UserImportPart).where(UserImportPart.import_id == broken.id).values(sealed_rows=b"rubbish")
    )
    db.session.commit()
    good = begin(admin(make, globex), user_rows(2))
    assert import_runner.process_due_imports(Actor.system("", "tests"), holder="tests") == 2
    assert import_records.get_import(admin(make, acme), broken.public_id).failure is not None
    assert import_records.get_import(admin(make, globex), good.public_id).status == "done"


def test_number_of_unfinished_imports_is_limited(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_uploads, "MAX_UNFINISHED_IMPORTS", 2)
    acme = make.organization()
    actor = admin(make, acme)
    records_ = [begin(actor, user_rows(1)) for _ in range(2)]
    with pytest.raises(Conflict) as refusal:
        begin(actor, user_rows(1))
    assert refusal.value.code == "too_many_imports"
    import_records.cancel_import(actor, records_[0].public_id)
    begin(actor, user_rows(1))
    begin(admin(make, make.organization()), user_rows(1))


def test_uploaded_rows_are_sealed_and_deleted(make: Any) -> None:
    """Personal data and hashes are sealed and kept for days at most."""
    acme = make.organization()
    actor = admin(make, acme)
    ended = bring_in(actor, "email,name\nnobody,Secret Name\n")
    begin(actor, "email,name\nada@a.example,Secret Name\n")
    sealed = [
        *db.session.scalars(select(UserImportPart.sealed_rows)),
        *db.session.scalars(select(UserImportRefusal.sealed_row)),
    ]
    assert len(sealed) == 2 and not [one for one in sealed if b"Secret" in one]
    past = db.session.scalar(select(UserImport.created_at)).replace(year=2020)
    for model in (UserImport, UserImportPart, UserImportRefusal):
        db.session.execute(update(model).values(expires_at=past))
    db.session.commit()
    purge_expired(Actor.system("", "tests"), pause=0)
    assert stored(UserImport) == stored(UserImportPart) == stored(UserImportRefusal) == 0
    with pytest.raises(NotFound):
        import_records.get_import(actor, ended.public_id)


def test_unconfirmed_upload_is_discarded(make: Any) -> None:
    acme = make.organization()
    actor = admin(make, acme)
    upload = import_uploads.receive_upload(actor, io.BytesIO(user_rows(3).encode()).read, file_format="csv")
    assert import_records.list_imports(actor).items == ()
    assert import_runner.process_due_imports(Actor.system("", "tests"), holder="tests") == 0
    import_records.discard_upload(actor, upload.id)
    with pytest.raises(Conflict):
        import_uploads.confirm_upload(actor, upload, is_dry_run=False)
    assert stored(UserImport) == stored(UserImportPart) == 0


def test_upload_is_confirmed_once(make: Any) -> None:
    actor = admin(make, make.organization())
    upload = import_uploads.receive_upload(actor, io.BytesIO(user_rows(3).encode()).read, file_format="csv")
    import_uploads.confirm_upload(actor, upload, is_dry_run=True)
    with pytest.raises(Conflict):
        import_uploads.confirm_upload(actor, upload, is_dry_run=False)
    assert import_records.get_import(actor, public_id("imp", upload.id)).status == "checking"


def test_imported_hash_is_stored_in_normal_form(make: Any) -> None:
    acme = make.organization()
    django = "pbkdf2_sha256$1200$0123456789abcdefghijkl$" + "A" * 43 + "="
    bring_in(admin(make, acme), f"email,password_hash\nada@a.example,{django}\n")
    asked = select(User.password_hash, User.password_scheme).where(User.email == "ada@a.example")
    kept = db.session.execute(asked).one()
    assert (kept.password_hash, kept.password_scheme) == (parse_hash(django).stored, "pbkdf2-sha256 1200")
