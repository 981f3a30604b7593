"""Migrations produce the schema of the models on both engines, and can be reversed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from flask_migrate import downgrade, upgrade
from sqlalchemy import MetaData, Table, inspect, select
from sqlalchemy.exc import OperationalError

from app import config, create_app
from app.extensions import db
from app.models import Base
from app.operations.maintenance.database_checks import list_missing_columns
from app.operations.maintenance.doctor import run_checks
from app.rules.identifiers import new_id, public_id
from tests.support.applications import BASE_URL, environment
from tests.support.databases import Database, MariaDBDatabase, SQLiteDatabase
from tests.support.schema_stage import Stage, columns, killed_after

ROOT = Path(__file__).resolve().parents[2]
# Later migrations run while the release before them serves.
LAST_OF_0_1 = "0023"
A_DAY = datetime(2026, 11, 1, tzinfo=UTC)


@pytest.fixture(scope="module", params=[pytest.param("mariadb", marks=pytest.mark.mariadb), "sqlite"])
def engine(request: pytest.FixtureRequest) -> str:
    """The engine under test."""
    return str(request.param)


@pytest.fixture(scope="module")
def new_database(
    request: pytest.FixtureRequest, engine: str, tmp_path_factory: pytest.TempPathFactory, worker: str
) -> Callable[[str], Database]:
    """Return a function that makes a database without tables."""

    def make(name: str) -> Database:
        if engine == "sqlite":
            return SQLiteDatabase(tmp_path_factory.mktemp(name) / "gatehouse.sqlite")
        return MariaDBDatabase(request.getfixturevalue("mariadb"), f"{name}_{worker}")

    return make


@pytest.fixture(scope="module")
def applied(new_database: Callable[[str], Database], instance: Path) -> Stage:
    return Stage(new_database("migrations"), instance)


@pytest.fixture
def stage(applied: Stage) -> Iterator[Stage]:
    """The application on a database without tables."""
    with applied.app.app_context():
        applied.empty()
        yield applied
        applied.empty()


def tables() -> set[str]:
    return set(inspect(db.engine).get_table_names())


def differences() -> list[Any]:
    """Return how the database differs from the models."""
    with db.engine.connect() as connection:
        described = MigrationContext.configure(connection, opts={"compare_type": True})
        return list(compare_metadata(described, Base.metadata))


def test_migrations_match_the_models(stage: Stage) -> None:
    upgrade()
    assert differences() == []
    inspector = inspect(db.engine)
    if inspector.dialect.name != "sqlite":  # It does not store comments.
        differing = {
            f"{table.name}.{column.name}"
            for table in Base.metadata.sorted_tables
            for there in inspector.get_columns(table.name)
            if (column := table.c[there["name"]]).comment != there.get("comment")
        }
        assert differing == set()
    # Alembic does not compare keys on SQLite; a missing one would let organizations mix (TN-4).
    for table in Base.metadata.sorted_tables:
        wanted = {
            (tuple(key.column_keys), key.referred_table.name, tuple(e.column.name for e in key.elements))
            for key in table.foreign_key_constraints
        }
        there = {
            (tuple(key["constrained_columns"]), key["referred_table"], tuple(key["referred_columns"]))
            for key in inspector.get_foreign_keys(table.name)
        }
        assert there == wanted, table.name
        assert inspector.get_pk_constraint(table.name)["constrained_columns"] == [
            column.name for column in table.primary_key
        ], table.name


@pytest.mark.slow
def test_database_filled_for_tests_is_like_a_migrated_one(
    stage: Stage, new_database: Callable[[str], Database]
) -> None:
    """``application`` of the tests migrates only the first database of each kind."""
    migrated, filled = stage.database, new_database("filled")
    upgrade()
    for engine in db.engines.values():
        engine.dispose()
    migrated.remember()
    filled.fill(migrated.contents())
    filled.remember()
    assert filled.contents() == migrated.contents()
    # All that is in a database, also what ``contents`` does not know of.
    assert [*_described(filled)] == [*_described(migrated)]


def _described(database: Database) -> Iterator[Any]:
    if isinstance(database, SQLiteDatabase):
        yield from database.query("SELECT type, name, sql FROM sqlite_master ORDER BY type, name")
    else:
        dump = database.dump().replace(b" CHARACTER SET utf8mb4 COLLATE", b" COLLATE")
        yield from (line for line in dump.splitlines() if not line.startswith(b"--"))


@pytest.mark.slow
def test_migrations_can_be_reversed_and_repeated(stage: Stage) -> None:
    stage.start_at("head")
    first = tables()
    assert set(Base.metadata.tables) <= first
    downgrade(revision="-3")
    upgrade()
    assert tables() == first
    downgrade(revision="base")
    assert tables() <= {"alembic_version"}
    upgrade()
    assert tables() == first


def test_interrupted_migration_goes_on(stage: Stage) -> None:
    """MariaDB commits each change of the schema: tables, columns, indexes and foreign keys, added and dropped."""
    if stage.database.engine == "sqlite":
        return
    for revision, changes in (("0023", 1), ("0030", 1), ("0046", 1), ("0046", 3), ("0046", 5)):
        stage.start_at(revision)
        with killed_after(changes):
            upgrade()
        upgrade()
        assert differences() == []
    with killed_after(5):
        downgrade(revision="0046")
    downgrade(revision="0046")
    assert "provisioning_tokens" not in tables()


def test_migration_may_take_longer_than_a_request(stage: Stage, instance: Path) -> None:
    """On MariaDB it waits for a transaction that reads the table, and then builds an index."""
    if stage.database.engine == "sqlite":
        return
    stage.start_at("0047")
    hurried = environment(stage.database, instance, BASE_URL) | {"GATEHOUSE_DATABASE_TIMEOUT": "1"}
    app = create_app(config.load(hurried))
    with db.engine.connect().execution_options(read_only=True) as reading, app.app_context():
        reading.exec_driver_sql("SELECT 1 FROM clients").all()
        threading.Timer(1.8, reading.rollback).start()
        upgrade()


def test_table_with_rows_is_not_taken_for_that_of_a_migration(stage: Stage) -> None:
    """It is left of the database that a backup was restored over. Neither is one with other columns."""
    if stage.database.engine == "sqlite":
        return
    stage.start_at("0047")
    with db.engine.begin() as connection:
        connection.exec_driver_sql("SET FOREIGN_KEY_CHECKS = 0")
        connection.exec_driver_sql(
            "INSERT INTO provisioning_tokens (organization_id, id, provider_id, digest, hint, created_at)"
            " VALUES ('acme0000', REPEAT('i', 16), REPEAT('p', 16), REPEAT('d', 32), 'hint', NOW())"
        )
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0046'")
    with pytest.raises(OperationalError, match="exists"):
        upgrade()
    stage.start_at("0046")
    with db.engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE provisioning_tokens (id INT PRIMARY KEY)")
    with pytest.raises(OperationalError, match="exists"):
        upgrade()


def test_release_before_a_migration_can_go_on_writing(stage: Stage) -> None:
    """A migration removes and renames nothing, and a row that the release before inserts is valid: it serves on while
    others are upgraded. What is no longer used is removed one release later, and then listed here.
    """
    removed_later: dict[str, set[tuple[str, str]]] = {}
    stage.start_at(LAST_OF_0_1)
    revisions = ScriptDirectory(str(ROOT / "migrations")).iterate_revisions("heads", LAST_OF_0_1)
    after = columns()
    for revision in reversed([script.revision for script in revisions]):
        before = after
        upgrade(revision=revision)
        after = columns()
        tables_before = {table for table, _ in before}
        assert before.keys() - after.keys() == removed_later.get(revision, set()), revision
        required = {
            name
            for name, is_required in after.items()
            if is_required and name[0] in tables_before and not before.get(name, False)
        }
        assert required == set(), revision


# Two processes that have imported the application begin at the same moment.
STARTING_TOGETHER = """
import os, sys
from flask_migrate import upgrade
from app import create_app

other = os.fork()
with create_app().app_context():
    upgrade()
if other:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(other, 0)[1]))
"""


def test_machines_that_start_together_migrate_once(stage: Stage) -> None:
    """Two processes on an empty database: each ends well, and the schema is whole."""
    settings = stage.app.config["GATEHOUSE"]
    env = os.environ | {
        "DATABASE_URL": settings.database_url,
        "GATEHOUSE_BASE_URL": settings.base_url,
        "GATEHOUSE_INSTANCE": str(settings.instance),
    }
    ended = subprocess.run(
        [sys.executable, "-c", STARTING_TOGETHER],
        cwd=ROOT, env=env, stderr=subprocess.PIPE, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-4000:]
    assert list_missing_columns() == ()


def test_database_of_an_edited_migration_is_not_ready(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """It has the newest number, and lacks a column that this release reads."""
    stage.start_at("head")
    with db.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE clients DROP COLUMN trust")
    answer = stage.app.test_client().get("/readyz")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    assert "lacks clients.trust" in caplog.text
    assert "clients.trust" not in answer.text
    findings = run_checks(stage.app.config["GATEHOUSE"]).findings
    assert [each.level for each in findings if "clients.trust" in each.message] == ["problem"]


def put(table: str, **values: Any) -> None:
    """Insert a row with the current schema; required columns that are not named get placeholders."""
    there = Table(table, MetaData(), autoload_with=db.engine, resolve_fks=False)
    empty: dict[type, Any] = {int: 0, bool: False, str: "", bytes: b"", datetime: A_DAY}
    blank = {column.name: empty[column.type.python_type] for column in there.columns if not column.nullable}
    with db.engine.begin() as connection:
        connection.execute(there.insert().values(blank | values))


def test_dropped_references_to_organizations_keep_the_rows(stage: Stage) -> None:
    """0024: in place, and in both directions."""
    stage.start_at("0024")
    put("organizations", id=b"acme0000", slug=b"acme0000", status=b"active")
    user_id, _ = put_user("ada@a.example")
    put_role(user_id, b"admin", "chief@a.example")
    for move, expected in ((downgrade, {"organizations", "users"}), (upgrade, {"users"})):
        move(revision="-1" if move is downgrade else "0024")
        keys = inspect(db.engine).get_foreign_keys("role_assignments")
        assert {key["referred_table"] for key in keys} == expected
        roles = Table("role_assignments", MetaData(), autoload_with=db.engine, resolve_fks=False)
        with db.engine.connect() as connection:
            assert connection.scalars(select(roles.c.user_id)).all() == [user_id]


def put_user(email: str, *, email_verified: bool = False) -> tuple[bytes, bytes]:
    """Return the user's id, and the public id in audit events."""
    user_id = new_id()
    put(
        "users",
        organization_id=b"acme0000",
        id=user_id.bytes,
        email=email,
        email_canonical=email.encode(),
        email_verified=email_verified,
        status=b"active",
    )
    return user_id.bytes, public_id("usr", user_id).encode()


def put_role(user_id: bytes, role: bytes, by: str) -> None:
    acme, row_id = b"acme0000", new_id().bytes
    who = {"user_organization_id": acme, "user_id": user_id}
    put("role_assignments", organization_id=acme, id=row_id, role=role, created_by=by, **who)


def put_event(action: bytes, target: bytes, actor: bytes | None, after: str | None = None) -> None:
    acme, row_id = b"acme0000", new_id().bytes
    more = {"target_id": target, "actor_id": actor, "after": after}
    put("audit_events", organization_id=acme, id=row_id, action=action, **more)


def test_restore_cutoffs_are_unset_for_existing_rows(stage: Stage) -> None:
    """0026: nothing was restored before; the columns and only they go when it is reversed."""
    stage.start_at("0026")
    downgrade(revision="-1")
    put("organizations", id=b"acme0000", slug=b"acme", status=b"active", name="Acme")
    upgrade(revision="0026")
    columns = "name, restored_at, secrets_not_before, passwords_not_before"
    with db.engine.connect() as connection:
        kept = connection.exec_driver_sql(f"SELECT {columns} FROM organizations").all()
    assert [tuple(row) for row in kept] == [("Acme", None, None, None)]
    downgrade(revision="-1")
    with db.engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT name FROM organizations").scalar_one() == "Acme"


def test_names_of_purged_organizations_are_erased(stage: Stage) -> None:
    """0042: they were kept; those of other organizations stay."""
    stage.start_at("0041")
    for status in (b"purged", b"deleted"):
        put(
            "organizations", id=status, slug=status, status=status, name="Acme", created_by="ada@acme.example"
        )
    upgrade(revision="0042")
    with db.engine.connect() as connection:
        kept = connection.exec_driver_sql("SELECT name, created_by FROM organizations ORDER BY id").all()
    assert [tuple(row) for row in kept] == [("Acme", "ada@acme.example"), ("", None)]


def test_existing_organizations_keep_requiring_pkce(stage: Stage) -> None:
    """0027: an upgrade loosens nothing, keeps all other settings, and can be reversed with codes of both kinds."""
    stage.start_at("0027")
    downgrade(revision="-1")
    before = {b"acme0000": {}, b"0ther000": {"oauth": {"require_par": True}, "branding": {"theme": "dark"}}}
    for organization, settings in before.items():
        text = json.dumps(settings)
        put("organizations", id=organization, slug=organization, status=b"active", settings=text, version=7)
    upgrade(revision="0027")

    def stored() -> dict[bytes, dict[str, Any]]:
        with db.engine.connect() as connection:
            rows = connection.exec_driver_sql("SELECT id, settings FROM organizations").all()
        return {bytes(row[0]): json.loads(row[1]) for row in rows}

    assert stored() == {
        b"acme0000": {"oauth": {"pkce": "required"}},
        b"0ther000": {"oauth": {"require_par": True, "pkce": "required"}, "branding": {"theme": "dark"}},
    }
    user_id, _ = put_user("ada@a.example")
    client_id = new_id().bytes
    put("clients", organization_id=b"acme0000", id=client_id, document="{}")
    for number, challenge in enumerate((b"c" * 43, None)):
        owners = {"organization_id": b"acme0000", "client_id": client_id, "user_id": user_id}
        row_id = {"id": new_id().bytes, "grant_id": new_id().bytes, "digest": bytes([number]) * 32}
        put("authorization_codes", code_challenge=challenge, **owners, **row_id)
    downgrade(revision="-1")
    assert stored() == {**before, b"acme0000": {"oauth": {}}}
    with db.engine.connect() as connection:
        kept = connection.exec_driver_sql("SELECT code_challenge FROM authorization_codes").scalars().all()
    assert [bytes(challenge) for challenge in kept] == [b"c" * 43]


def test_invited_accounts_are_migrated_as_verified(stage: Stage) -> None:
    """0023: otherwise the owner of the mailbox could remove their second factors by a reset (RP-3, MF-6)."""
    stage.start_at("0022")
    acme = b"acme0000"
    for organization in (acme, b"0ther000"):
        put("organizations", id=organization, slug=organization, status=b"active")
    put_user("proven@a.example", email_verified=True)
    boss, _ = put_user("boss@a.example")
    put_role(boss, b"admin", "chief@a.example")
    put_user("invited@a.example")
    for used, email in ((A_DAY, b"invited@a.example"), (None, b"waiting@a.example")):
        more = {"email_canonical": email, "used_at": used}
        put("invitations", organization_id=acme, id=new_id().bytes, digest=email.ljust(32), **more)
    _, invited_long_ago = put_user("old@a.example")
    after = f'{{"user_id":"{invited_long_ago.decode()}","role":"member"}}'
    put_event(b"invitation.accepted", b"inv_1", None, after)
    for number in range(8):
        _, made = put_user(f"made{number}@a.example")
        put_event(b"user.created", made, b"usr_chief" if number else None)
    # Accounts without verification: self-registered, with default roles, or imported.
    member, name = put_user("member@a.example")
    put_role(member, b"member", "chief@a.example")
    put_event(b"user.registered", name, None)
    developer, name = put_user("developer@a.example")
    put_role(developer, b"developer", "developer@a.example")
    put_event(b"user.created", name, name)
    put_user("waiting@a.example")
    _, name = put_user("elsewhere@a.example")
    put(
        "audit_events", organization_id=b"0ther000", id=new_id().bytes, action=b"user.created", target_id=name
    )
    upgrade(revision="0023")
    users = Table("users", MetaData(), autoload_with=db.engine, resolve_fks=False)
    with db.engine.connect() as connection:
        marked = set(connection.scalars(select(users.c.email).where(users.c.made_unproven == 1)))
    unvouched = ("member", "developer", "waiting", "elsewhere")
    assert marked == {f"{who}@a.example" for who in unvouched}


def test_clients_keep_the_access_that_they_had(stage: Stage) -> None:
    """0025: nothing stops working; a client that only acts for users gets no access by itself."""
    stage.start_at("0023")
    acme, exchange = b"acme0000", "urn:ietf:params:oauth:grant-type:token-exchange"
    put("organizations", id=acme, slug=acme, status=b"active")
    orders, stock = new_id().bytes, new_id().bytes
    for resource_id, identifier in ((orders, b"https://orders.example"), (stock, b"urn:stock")):
        put("resources", organization_id=acme, id=resource_id, identifier=identifier, status=b"active")
    for name, owner in (
        (b"orders:read", orders),
        (b"stock:read", stock),
        (b"plain", None),
        (b"openid", None),
    ):
        scope = {"name": name, "resource_id": owner, "is_identity": name == b"openid"}
        put("scopes", organization_id=acme, id=new_id().bytes, **scope)
    clients: dict[bytes, str] = {}

    def put_client(name: str, grant: str, scopes: list[str], resources: tuple[str, ...] = ()) -> None:
        document = {"grant_types": [grant], "scopes": scopes, "resources": list(resources)}
        row_id = new_id().bytes
        clients[row_id] = name
        status = b"deleted" if name == "deleted" else b"active"
        put("clients", organization_id=acme, id=row_id, status=status, document=json.dumps(document))

    put_client("job", "client_credentials", ["orders:read", "clients:read"])
    put_client("gateway", exchange, ["openid", "orders:read", "stock:read"])
    put_client("server", "client_credentials", [], ("urn:stock", "urn:elsewhere"))
    put_client("flexible", "client_credentials", ["plain", "orders:read"])
    put_client("web", "authorization_code", ["openid", "orders:read", "plain"])
    put_client("deleted", "client_credentials", ["orders:read"])
    upgrade(revision="0025")
    access = Table("client_access", MetaData(), autoload_with=db.engine, resolve_fks=False)
    resources = Table("resources", MetaData(), autoload_with=db.engine, resolve_fks=False)
    with db.engine.connect() as connection:
        policies = {bytes(policy) for policy in connection.scalars(select(resources.c.access_policy))}
        rows = {
            (
                clients[bytes(row.client_id)],
                "orders" if bytes(row.resource_id) == orders else "stock",
                bytes(row.status).decode(),
                row.scopes,
            )
            for row in connection.execute(select(access))
        }
    assert policies == {b"approval"}
    assert rows == {
        ("job", "orders", "granted", '["orders:read"]'),
        ("gateway", "orders", "granted", '["orders:read"]'),
        ("gateway", "stock", "granted", '["stock:read"]'),
        ("server", "stock", "granted", "[]"),
        ("flexible", "orders", "granted", '["orders:read"]'),
        ("flexible", "stock", "granted", "[]"),
    }
    downgrade(revision="0023")
    assert "client_access" not in tables()
    upgrade(revision="0025")


def test_existing_organizations_get_the_scopes_of_groups_and_roles(stage: Stage) -> None:
    """0028: an own scope of the name stays as it is, in both directions, and a purged organization gets none."""
    stage.start_at("0027")
    acme, globex, purged = b"acme0000", b"globex00", b"gone0000"
    for organization, status in ((acme, b"active"), (globex, b"suspended"), (purged, b"purged")):
        put("organizations", id=organization, slug=organization, status=status)
    put("scopes", organization_id=globex, id=new_id().bytes, name=b"roles", title="Ours")
    put_user("ada@a.example")

    def scopes() -> set[tuple[bytes, bytes, str | None]]:
        table = Table("scopes", MetaData(), autoload_with=db.engine, resolve_fks=False)
        with db.engine.connect() as connection:
            rows = connection.execute(select(table.c.organization_id, table.c.name, table.c.title)).all()
        return {(bytes(organization), bytes(name), title) for organization, name, title in rows}

    upgrade(revision="0028")
    own = (globex, b"roles", "Ours")
    groups, roles = "See your groups", "See your roles in the app"
    assert scopes() == {(acme, b"groups", groups), (acme, b"roles", roles), (globex, b"groups", groups), own}
    assert {"user_groups", "group_members", "app_role_assignments"} <= tables()
    downgrade(revision="0027")
    assert scopes() == {own} and "user_groups" not in tables()
    upgrade(revision="0028")
