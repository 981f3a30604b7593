"""An organization moves from one installation to another, with other keys and another engine, and lives on."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import text, update

from app.extensions import db
from app.models.base import UtcDateTime
from app.models.organization import Organization
from app.operations import directory
from app.operations.evidence.verification import verify_audit_log
from app.operations.people.administrators import add_administrator
from app.operations.people.sign_in import SignedIn, sign_in
from app.operations.registration.credential_views import reveal_credential
from app.operations.registration.credentials import list_credentials
from app.operations.tenancy import organizations
from app.operations.transfer.archive import ArchiveReader, ArchiveWriter, Unreadable
from app.operations.transfer.exporting import COLUMNS, export_organization
from app.operations.transfer.importing import import_organization
from app.operations.upkeep import janitor
from app.operations.user_administration.lists import list_users
from app.operations.user_administration.records import find_user_record
from app.rules.actor import Actor
from app.rules.errors import Conflict, InvalidInput, NotFound
from app.rules.identifiers import public_id
from tests.factories import PASSWORD, Factory, MadeClient, MadeUser
from tests.oauth.conftest import FAST_KEYS, SCOPES, Flow
from tests.support.applications import application
from tests.support.databases import Database

PASSPHRASE = "a barge of walnuts at noon"


@dataclass
class Moved:
    """An organization with everything that travels, and the file of it."""

    organization: directory.OrganizationView
    user: MadeUser
    client: MadeClient
    refresh_token: str
    file: bytes


@pytest.fixture
def elsewhere(
    database: Database, databases: Callable[[str], Database], tmp_path: Path
) -> Iterator[tuple[Flask, Database]]:
    """Another installation: other keys, the other engine, its own root."""
    other = databases("mariadb" if database.engine == "sqlite" else "sqlite")
    other.clean()
    folder = tmp_path / "elsewhere"
    folder.mkdir(mode=0o700)
    made = application(other, folder, "http://localhost")
    directory.forget_cached()
    Factory(made).root()
    yield made, other
    other.clean()
    directory.forget_cached()


@pytest.fixture
def moved(app: Flask, http: FlaskClient, make: Factory) -> Moved:
    make.root()
    acme = make.organization("acme", settings=FAST_KEYS | {"branding": {"display_name": "Acmé ☀"}})
    admin = make.user(acme, email="ada@acme.example", role="admin")
    client = make.client(acme, scopes=SCOPES)
    flow = Flow(app, http, make, client, admin)
    flow.sign_in()
    refresh_token = flow.redeem(flow.code(scope="openid offline_access")).get_json()["refresh_token"]
    return Moved(acme, admin, client, refresh_token, exported(app, "acme"))


def exported(app: Flask, slug: str) -> bytes:
    stream = io.BytesIO()
    with app.app_context():
        export_organization(operator(), slug, stream, PASSPHRASE)
    return stream.getvalue()


def operator() -> Actor:
    return Actor.system(directory.root_organization().id, "tests")


def brought_in(app: Flask, file: bytes, passphrase: str = PASSPHRASE) -> Any:
    with app.app_context():
        return import_organization(operator(), io.BytesIO(file), passphrase)


def test_people_clients_keys_and_evidence_live_on_elsewhere(
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
        acme = directory.organization_by_slug("acme")
        assert (acme.id, acme.name) == (moved.organization.id, moved.organization.name)
        assert acme.settings["branding"]["display_name"] == "Acmé ☀"
        signed_in = sign_in(acme.id, moved.user.email, PASSWORD)
        assert isinstance(signed_in, SignedIn)
        system = Actor.system(acme.id, "tests")
        credential_id = list_credentials(system, moved.client.client_id)[0].public_id
        assert reveal_credential(system, moved.client.client_id, credential_id) == moved.client.secret
        verified = verify_audit_log(system)
        # What waits is this sign-in and this reveal.
        assert not verified.problems and verified.checked >= 10 and verified.waiting <= 2
    actions = {row[0] for row in database.query("SELECT CAST(action AS CHAR(99)) FROM audit_events")}
    assert {"organization.exported", "organization.imported", "client.registered"} <= actions


def test_the_file_shows_nothing_but_its_head(moved: Moved) -> None:
    head, sealed = moved.file[:400], moved.file[400:]
    assert b'"organization": "acme"' in head and PASSPHRASE.encode() not in moved.file
    for word in (b"ada@acme.example", b"Acm", moved.client.client_id.encode(), moved.client.secret.encode()):
        assert word not in sealed


def test_any_change_cut_or_wrong_passphrase_is_met_and_nothing_stands(
    moved: Moved, elsewhere: tuple[Flask, Database]
) -> None:
    there, database = elsewhere
    file = moved.file
    wrong = [file[:-1], file[:-200], file + b"x", file[:60], b"", b"hello"]
    places = range(0, len(file), len(file) // 23)
    wrong += [file[:place] + bytes([file[place] ^ 1]) + file[place + 1 :] for place in places]
    for changed in wrong:
        with pytest.raises(Unreadable):
            brought_in(there, changed)
    with pytest.raises(Unreadable, match="passphrase"):
        brought_in(there, file, "another passphrase at all")
    with there.app_context(), pytest.raises(NotFound):
        directory.organization_by_slug("acme")
    assert brought_in(there, file).slug == "acme"
    assert database.count("users") == 2


def test_nobody_sees_an_import_before_it_is_whole_and_an_interrupted_one_is_begun_again(
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
        assert database.count("users") == 2
        with pytest.raises(NotFound):
            organizations.get_organization(operator(), "acme")
        assert sign_in_is_refused(moved)
    refused = there.test_client().post(
        "/oauth/token", data={"grant_type": "client_credentials"}, headers=moved.client.basic
    )
    assert refused.status_code == 401
    assert brought_in(there, moved.file).rows["users"] == 1
    assert database.count("users") == 2


def sign_in_is_refused(moved: Moved) -> bool:
    try:
        return not isinstance(sign_in(moved.organization.id, moved.user.email, PASSWORD), SignedIn)
    except NotFound:
        return True


def test_it_never_takes_the_place_of_what_stands(moved: Moved, app: Flask, make: Factory) -> None:
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


def test_it_comes_back_after_it_was_purged(moved: Moved, app: Flask, database: Database) -> None:
    with app.app_context():
        organizations.delete_organization(operator(), "acme")
        database.query("UPDATE organizations SET purge_at = '2020-01-01' WHERE purge_at IS NOT NULL")
        janitor.purge(operator(), pause=0)
        with pytest.raises(NotFound):
            organizations.get_organization(operator(), "acme")
    brought_in(app, moved.file)
    with app.app_context():
        assert isinstance(sign_in(moved.organization.id, moved.user.email, PASSWORD), SignedIn)
        assert not verify_audit_log(Actor.system(moved.organization.id, "tests")).problems


def test_a_slug_that_another_organization_has_is_refused(
    moved: Moved, elsewhere: tuple[Flask, Database]
) -> None:
    there, _ = elsewhere
    Factory(there).organization("acme")
    with pytest.raises(Conflict, match="acme"):
        brought_in(there, moved.file)


def test_root_deleted_ones_and_short_passphrases_are_refused(app: Flask, make: Factory) -> None:
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


def test_a_role_that_somebody_of_root_holds_stays_behind(
    app: Flask, make: Factory, elsewhere: tuple[Flask, Database]
) -> None:
    there, database = elsewhere
    root = make.root()
    make.organization("acme")
    person = make.user(root)
    administrator = make.actor(root, user=make.user(root, role="admin"))
    with app.app_context():
        add_administrator(administrator, "acme", user_id=person.public_id, role="auditor")
    brought_in(there, exported(app, "acme"))
    assert database.query("SELECT COUNT(*) FROM role_assignments WHERE role = 'auditor'") == [(0,)]


def test_the_ids_of_people_stay_what_they_were(moved: Moved, elsewhere: tuple[Flask, Database]) -> None:
    """TN-7: a subject is never another's, and stays the same."""
    there, _ = elsewhere
    brought_in(there, moved.file)
    with there.app_context():
        found = find_user_record(Actor.system(moved.organization.id, "tests"), moved.user.email)
    assert found.user.public_id == public_id("usr", moved.user.id)


def test_a_file_that_somebody_with_the_passphrase_made_by_hand_reaches_nobody_else(
    moved: Moved, elsewhere: tuple[Flask, Database]
) -> None:
    """TN-4: rows of another organization, tables that do not travel, columns and states that are not there."""
    there, _ = elsewhere
    globex = Factory(there).organization("globex")
    good = list(ArchiveReader(io.BytesIO(moved.file), PASSPHRASE).records())
    users = next(
        n for n, record in enumerate(good) if isinstance(record, dict) and record.get("table") == "users"
    )
    key = good[users]["columns"].index("organization_id")
    forged = [globex.id if column == key else value for column, value in enumerate(good[users + 1])]
    organization = good[0]["organization"]
    for place, record in (
        (users + 1, forged),
        (users, {"table": "sessions", "columns": ["organization_id", "id"]}),
        (users, {"table": "users", "columns": [*good[users]["columns"][:-1], "is_root"]}),
        (0, {"organization": {**organization, "is_root": True}}),
        (0, {"organization": {**organization, "status": "purged"}}),
        (0, {"organization": {**organization, "id": "../etc"}}),
        (0, {"organization": {**organization, "slug": "../etc"}}),
        (0, {"organization": {**organization, "slug": 5}}),
        (0, {"organization": {**organization, "settings": []}}),
        (0, {"organization": {**organization, "version": "1"}}),
        (0, {"organization": {**organization, "data_key": "aa"}}),
        (0, {"organization": {**organization, "created_at": "yesterday"}}),
        (users, {"table": ["users"], "columns": []}),
        (users, {"table": "users", "columns": [["id"]]}),
        (users + 1, [1]),
        (users + 1, [{}] * len(good[users + 1])),
        (1, "x" * (17 << 20)),
    ):
        stream = io.BytesIO()
        writer = ArchiveWriter(stream, PASSPHRASE, {"organization": "acme"})
        for number, one in enumerate(good):
            writer.write(record if number == place else one)
        writer.close()
        with pytest.raises(Unreadable):
            brought_in(there, stream.getvalue())
    with there.app_context(), pytest.raises(NotFound):
        directory.organization_by_slug("acme")
    with there.app_context():
        assert not list_users(Actor.system(globex.id, "tests")).items


def test_every_moment_of_an_organization_travels(
    app: Flask, make: Factory, elsewhere: tuple[Flask, Database]
) -> None:
    """One that demands second factors counts its time of grace on; one that ended all sign-ins knows when."""
    make.root()
    acme = make.organization("acme")
    moments = [name for name in COLUMNS if isinstance(Organization.__table__.c[name].type, UtcDateTime)]
    assert {"factor_demanded_at", "admins_factor_demanded_at", "sessions_not_before"} <= set(moments)
    at = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
    with app.app_context():
        db.session.execute(
            update(Organization).where(Organization.id == acme.id).values(dict.fromkeys(moments, at))
        )
        db.session.commit()
    there, _ = elsewhere
    brought_in(there, exported(app, "acme"))
    with there.app_context():
        row = db.session.get_one(Organization, acme.id)
        assert {name: getattr(row, name) for name in moments} == dict.fromkeys(moments, at)


def test_who_reads_after_an_export_reads_by_the_rules_of_all_others(
    app: Flask, make: Factory, database: Database
) -> None:
    """The snapshot's isolation stays with its connection: a loser of a race must see the winner's row."""
    make.root()
    make.organization("acme")
    exported(app, "acme")
    if database.engine != "mariadb":
        return
    with app.app_context():
        assert db.session.scalar(text("SELECT @@tx_isolation")) == "READ-COMMITTED"
