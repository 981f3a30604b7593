"""Migrations build what the models say, on both engines, and go down again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from flask import Flask
from flask_migrate import downgrade, upgrade
from sqlalchemy import inspect

from app import config, create_app
from app.extensions import db
from app.models import Base
from tests.support.applications import BASE_URL, environment
from tests.support.databases import MariaDBDatabase, SQLiteDatabase


@pytest.fixture(params=["mariadb", "sqlite"])
def unmigrated(
    request: pytest.FixtureRequest, tmp_path: Path, instance: Path, worker: str
) -> Iterator[Flask]:
    """The application on a database without tables."""
    database: MariaDBDatabase | SQLiteDatabase
    if request.param == "sqlite":
        database = SQLiteDatabase(tmp_path / "migrations.sqlite")
    else:
        database = MariaDBDatabase(request.getfixturevalue("mariadb"), f"migrations_{worker}")
    app = create_app(config.load(environment(database, instance, BASE_URL)))
    with app.app_context():
        yield app
        for engine in db.engines.values():
            engine.dispose()


def tables() -> set[str]:
    return set(inspect(db.engine).get_table_names())


def test_migrations_build_what_the_models_say(unmigrated: Flask) -> None:
    upgrade()
    with db.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []


def test_every_comment_of_a_model_is_in_the_database(unmigrated: Flask) -> None:
    upgrade()
    inspector = inspect(db.engine)
    if inspector.dialect.name == "sqlite":
        return  # which keeps no comments
    differing = {
        f"{table.name}.{column.name}"
        for table in Base.metadata.sorted_tables
        for there in inspector.get_columns(table.name)
        if (column := table.c[there["name"]]).comment != there.get("comment")
    }
    assert differing == set()


def test_foreign_keys_and_unique_keys_are_those_of_the_models(unmigrated: Flask) -> None:
    """Alembic compares neither on SQLite by name alone; a missing one lets organizations mix (TN-4)."""
    upgrade()
    inspector = inspect(db.engine)
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


def test_migrations_go_up_down_and_up(unmigrated: Flask) -> None:
    upgrade()
    first = tables()
    downgrade(revision="base")
    assert tables() <= {"alembic_version"}
    upgrade()
    assert tables() == first


def test_each_single_migration_goes_down_and_up_again(unmigrated: Flask) -> None:
    upgrade()
    for step in ("-1", "-2", "-3"):
        downgrade(revision=step)
        upgrade()
    assert set(Base.metadata.tables) <= tables()
