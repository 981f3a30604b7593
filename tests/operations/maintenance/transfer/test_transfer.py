"""Export an organization and import it into an installation with other keys and another database engine."""

from __future__ import annotations

import io
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import update

from app.extensions import db
from app.models.audit import Lease
from app.models.organization import PURGED, Organization
from app.operations.audit.audit_events import list_audit_events
from app.operations.audit.chain import ChainHead, find_chain, seal_all_events
from app.operations.audit.chain_verification import remember_heads, verify_audit_log
from app.operations.clients.credentials import list_credentials, reveal_credential
from app.operations.directory import lookups
from app.operations.maintenance import janitor, move, receive, transfer
from app.operations.maintenance.archive import UnreadableArchive
from app.operations.maintenance.transfer import export_organization, import_organization
from app.operations.organizations import organizations
from app.operations.organizations.administrators import add_administrator
from app.operations.sign_in.password_sign_in import sign_in
from app.operations.sign_in.sign_in import SignedIn
from app.operations.store import clock
from app.operations.store.rows import PageRequest
from app.operations.store.transactions import UnitOfWork, current_unit_of_work, transaction
from app.operations.users.users import find_user_record
from app.rules.actor import Actor
from app.rules.errors import Conflict, InvalidInput, NotFound
from app.rules.identifiers import public_id
from tests.factories import PASSWORD, Factory
from tests.operations.maintenance.test_moved_organizations import let_pass
from tests.operations.maintenance.transfer.conftest import PASSPHRASE, Moved, brought_in, exported, operator
from tests.support.databases import Database


def test_users_clients_keys_and_audit_log_work_after_import(
    moved: Moved, app: Flask, elsewhere: tuple[Flask, Database]
) -> None:
    there, database = elsewhere
    before = app.test_client().get("/organizations/acme/oauth/jwks").get_json()
    imported = brought_in(there, moved.file)
    assert imported.status == "active" and imported.rows["users"] == 1
    http = there.test_client()
    assert http.get("/organizations/acme/oauth/jwks").get_json() == before
    refreshed = http.post(
        "/oauth/token",
        data={"grant_type": "refresh_token", "refresh_token": moved.refresh_token},
        headers=moved.client.basic,
    )
    assert refreshed.status_code == 200, refreshed.text
    with there.app_context():
        acme = lookups.get_organization_by_slug("acme")
        assert (acme.id, acme.name) == (moved.organization.id, moved.organization.name)
        assert acme.settings["branding"]["display_name"] == "Acmé ☀"
        assert acme.settings["oauth"]["pkce"] == "required_or_nonce"
        signed_in = sign_in(acme.id, moved.user.email, PASSWORD)
        assert isinstance(signed_in, SignedIn)
        system = Actor.system(acme.id, "tests")
        credential_id = list_credentials(system, moved.client.client_id).items[0].public_id
        assert reveal_credential(system, moved.client.client_id, credential_id) == moved.client.secret
        verified = verify_audit_log(system)
        # This sign-in and this reveal are pending.
        assert not verified.problems and verified.checked >= 10 and verified.pending <= 2
    actions = {row[0] for row in database.query("SELECT CAST(action AS CHAR(99)) FROM audit_events")}
    assert {"organization.exported", "organization.imported", "client.registered"} <= actions


def test_file_reveals_only_its_header(moved: Moved) -> None:
    head, sealed = moved.file[:400], moved.file[400:]
    assert b'"organization": "acme"' in head and PASSPHRASE.encode() not in moved.file
    for word in (b"ada@acme.example", b"Acm", moved.client.client_id.encode(), moved.client.secret.encode()):
        assert word not in sealed


@pytest.mark.either
def test_changed_or_truncated_file_or_wrong_passphrase_imports_nothing(
    moved: Moved, elsewhere: tuple[Flask, Database]
) -> None:
    there, database = elsewhere
    file = moved.file
    wrong = [file[:-1], file[:-200], file + b"x", file[:60], b"", b"hello"]
    places = range(0, len(file), len(file) // 23)
    wrong += [file[:place] + bytes([file[place] ^ 1]) + file[place + 1 :] for place in places]
    for changed in wrong:
        with pytest.raises(UnreadableArchive):
            brought_in(there, changed)
    with pytest.raises(UnreadableArchive, match="passphrase"):
        brought_in(there, file, "another passphrase at all")
    with there.app_context(), pytest.raises(NotFound):
        lookups.get_organization_by_slug("acme")
    assert brought_in(there, file).slug == "acme"
    assert database.count("users") == 3


def test_partial_import_is_invisible_and_can_be_restarted(
    moved: Moved, elsewhere: tuple[Flask, Database]
) -> None:
    there, database = elsewhere

    class Interrupted(Exception):
        pass

    def stop(table: str, rows: int) -> None:
        if table == "grants":
            raise Interrupted

    with there.app_context():
        with pytest.raises(Interrupted):
            import_organization(operator(), io.BytesIO(moved.file), PASSPHRASE, progress=stop)
        assert database.count("users") == 3
        with pytest.raises(NotFound):
            organizations.get_organization(operator(), "acme")
        assert sign_in_is_refused(moved)
    refused = there.test_client().post(
        "/oauth/token", data={"grant_type": "client_credentials"}, headers=moved.client.basic
    )
    assert refused.status_code == 401
    assert brought_in(there, moved.file).rows["users"] == 1
    assert database.count("users") == 3


def test_import_that_ends_once_the_organization_is_served_leaves_no_old_event_unsealed(
    moved: Moved, elsewhere: tuple[Flask, Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody seals an event that is older than some minutes, and it would look as if it had been inserted."""
    there, _ = elsewhere
    activate = transfer._activate

    class Killed(BaseException):
        pass

    def served(*arguments: Any) -> None:
        activate(*arguments)
        raise Killed

    monkeypatch.setattr(transfer, "_activate", served)
    with there.app_context():
        with pytest.raises(Killed):
            import_organization(operator(), io.BytesIO(moved.file), PASSPHRASE)
        verified = verify_audit_log(Actor.system(moved.organization.id, "tests"))
    # The import itself, a moment ago.
    assert (verified.is_intact, verified.pending) == (True, 1)


def test_import_that_stalled_before_the_end_does_not_serve_the_rows_of_another(
    moved: Moved, elsewhere: tuple[Flask, Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    there, _ = elsewhere
    seal = transfer.seal_all_events

    def stalled(*arguments: Any) -> None:
        seal(*arguments)
        # Another one takes over when the lease has expired.
        db.session.execute(update(Lease).values(holder="another"))
        db.session.commit()

    monkeypatch.setattr(transfer, "seal_all_events", stalled)
    with there.app_context():
        with pytest.raises(Conflict, match="taken over"):
            import_organization(operator(), io.BytesIO(moved.file), PASSPHRASE)
        with pytest.raises(NotFound):
            organizations.get_organization(operator(), "acme")


def test_import_renews_its_lease_with_the_activation_and_seals_batch_by_batch(
    moved: Moved, elsewhere: tuple[Flask, Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise another import could take over in between, or a long log would be sealed in one transaction."""
    there, _ = elsewhere
    units: list[UnitOfWork | None] = []

    def noting(step: Any) -> Any:
        def noted(*arguments: Any) -> Any:
            try:
                units.append(current_unit_of_work())
            except RuntimeError:
                units.append(None)
            return step(*arguments)

        return noted

    for name in ("seal_all_events", "activate"):
        monkeypatch.setattr(transfer, name, noting(getattr(transfer, name)))
    with there.app_context():
        import_organization(operator(), io.BytesIO(moved.file), PASSPHRASE)
    first_sealing, activation, last_sealing = units
    assert (first_sealing, last_sealing) == (None, None) and activation is not None


def sign_in_is_refused(moved: Moved) -> bool:
    try:
        return not isinstance(sign_in(moved.organization.id, moved.user.email, PASSWORD), SignedIn)
    except NotFound:
        return True


def test_import_never_replaces_an_existing_organization(moved: Moved, app: Flask, make: Factory) -> None:
    """TN-7, TN-8."""
    for _ in range(2):
        with pytest.raises(Conflict):
            brought_in(app, moved.file)
        with app.app_context():
            organizations.update_organization(operator(), "acme", {"status": "suspended"})
    with app.app_context():
        organizations.delete_organization(operator(), "acme")
    with pytest.raises(Conflict):
        brought_in(app, moved.file)


def test_purged_organization_can_be_imported(moved: Moved, app: Flask, database: Database) -> None:
    """Its log is not that of before the purge, whose end this host has seen."""
    auditor = Actor.system(moved.organization.id, "tests")
    with app.app_context():
        organizations.update_organization(operator(), "acme", {"status": "suspended"})
        seal_all_events(auditor, auditor.organization_id)
        seen = find_chain(auditor.organization_id)
        remember_heads([ChainHead(auditor.organization_id, seen.length, seen.head)])
        organizations.delete_organization(operator(), "acme")
        database.query("UPDATE organizations SET purge_at = '2020-01-01' WHERE purge_at IS NOT NULL")
        janitor.purge_expired(operator(), pause=0)
        with pytest.raises(NotFound):
            organizations.get_organization(operator(), "acme")
    brought_in(app, moved.file)
    with app.app_context():
        assert isinstance(sign_in(moved.organization.id, moved.user.email, PASSWORD), SignedIn)
        assert not verify_audit_log(auditor).problems
        # Once the host has seen the end of the imported log, that one must be there, too.
        remember_heads([ChainHead(auditor.organization_id, seen.length + 9, seen.head)])
        assert [problem.kind for problem in verify_audit_log(auditor).problems] == ["rolled_back"]


def test_import_with_taken_slug_is_rejected(moved: Moved, elsewhere: tuple[Flask, Database]) -> None:
    there, _ = elsewhere
    Factory(there).organization("acme")
    with pytest.raises(Conflict, match="acme"):
        brought_in(there, moved.file)


def test_export_of_root_or_deleted_organization_is_rejected(app: Flask, make: Factory) -> None:
    make.root()
    make.organization("acme")
    with app.app_context():
        for slug, passphrase, refusal in (
            ("root", PASSPHRASE, Conflict),
            ("acme", "short", InvalidInput),
            ("nobody", PASSPHRASE, NotFound),
        ):
            with pytest.raises(refusal):
                export_organization(operator(), slug, io.BytesIO(), passphrase)
        organizations.delete_organization(operator(), "acme")
        with pytest.raises(Conflict):
            export_organization(operator(), "acme", io.BytesIO(), PASSPHRASE)


def test_roles_of_root_users_are_not_exported(
    app: Flask, make: Factory, elsewhere: tuple[Flask, Database]
) -> None:
    there, database = elsewhere
    root = make.root()
    make.organization("acme")
    auditor = make.user(root)
    administrator = make.actor(root, user=make.user(root, role="admin"))
    with app.app_context():
        add_administrator(administrator, "acme", user_id=auditor.public_id, role="auditor")
    brought_in(there, exported(app, "acme"))
    assert database.query("SELECT COUNT(*) FROM role_assignments WHERE role = 'auditor'") == [(0,)]


def test_user_ids_are_unchanged_after_import(moved: Moved, elsewhere: tuple[Flask, Database]) -> None:
    """TN-7: subjects are unchanged and never reused."""
    there, _ = elsewhere
    brought_in(there, moved.file)
    with there.app_context():
        found = find_user_record(Actor.system(moved.organization.id, "tests"), moved.user.email)
    assert found.user.public_id == public_id("usr", moved.user.id)


@pytest.mark.parametrize("is_purged", [False, True])
def test_organization_that_has_moved_away_is_not_imported(
    moved: Moved, app: Flask, database: Database, is_purged: bool
) -> None:
    """Another cell serves it, with the same issuer, client ids and tokens."""
    file = exported(app, "acme")
    with app.app_context():
        move._decide(moved.organization.id, "b", move._pause(moved.organization.id, 3600))
        if is_purged:
            values = {"status": PURGED, "data_key": None}
            statement = update(Organization).where(Organization.id == moved.organization.id).values(**values)
            transaction(lambda: db.session.execute(statement))()
        users = database.count("users")
        with pytest.raises(Conflict, match="moved to b"):
            brought_in(app, file)
    assert database.count("users") == users
    assert database.query("SELECT COUNT(*) FROM organizations WHERE moved_to IS NULL") == [(2,)]


def test_organization_that_is_being_moved_here_is_not_imported(
    moved: Moved, app: Flask, elsewhere: tuple[Flask, Database]
) -> None:
    there, _ = elsewhere
    with there.app_context():
        tombstone = {"id": moved.organization.id, "slug": "acme", "name": "Acme", "created_by": None}
        transfer.create_tombstone({**tombstone, "created_at": clock.now()})
        receive._change_tombstone(moved.organization.id, moving_until=clock.now())
    with pytest.raises(Conflict, match="being moved here"):
        brought_in(there, moved.file)
    with there.app_context():
        receive._change_tombstone(moved.organization.id, moving_until=None)
    assert brought_in(there, moved.file).slug == "acme"


def test_audit_log_with_acts_of_the_former_root_can_be_read(
    moved: Moved, make: Factory, app: Flask, elsewhere: tuple[Flask, Database]
) -> None:
    """That root organization is unknown here."""
    there, _ = elsewhere
    root = make.root()
    with app.app_context():
        inside = make.actor(root).acting_in(moved.organization.id, frozenset({"organization:write"}))
        transaction(organizations.record_organization_event)(inside, "acme", "organization.updated", {}, {})
    brought_in(there, exported(app, "acme"))
    with there.app_context():
        found = list_audit_events(Actor.system(moved.organization.id, "tests"), PageRequest(100)).items
        assert [event.actor_organization for event in found if event.actor_organization] == [root.id]


@pytest.mark.parametrize("is_prepared", [False, True])
def test_rows_that_an_interrupted_transfer_left_are_deleted_after_a_week(
    moved: Moved, elsewhere: tuple[Flask, Database], monkeypatch: pytest.MonkeyPatch, is_prepared: bool
) -> None:
    """Those of a move that may have been decided are kept."""
    there, database = elsewhere
    own = database.count("users")

    def stop(table: str, rows: int) -> None:
        if table == "grants":
            raise InterruptedError

    with there.app_context():
        with pytest.raises(InterruptedError):
            import_organization(operator(), io.BytesIO(moved.file), PASSPHRASE, progress=stop)
        if is_prepared:
            receive._change_tombstone(moved.organization.id, moving_until=clock.now())
        for days, left in ((0, 1), (8, int(is_prepared)), (0, int(is_prepared))):
            let_pass(monkeypatch, days)
            janitor.purge_expired(operator(), pause=0)
            assert database.count("users") == own + left
            assert (
                database.query("SELECT COUNT(*) FROM organizations WHERE purge_at IS NULL")[0][0] == 3 - left
            )
    if not is_prepared:
        assert brought_in(there, moved.file).slug == "acme"
