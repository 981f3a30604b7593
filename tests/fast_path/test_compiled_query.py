"""Compiled queries: one round trip, Python types, and a retry on a dead connection."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import Integer, LargeBinary, String, bindparam, event, insert, literal_column, select
from sqlalchemy.exc import IntegrityError

from app.database import engines
from app.database_errors import ErrorClass, classify_error, is_duplicate_key
from app.extensions import db
from app.fast_path import compiled_query
from app.fast_path.compiled_query import CompiledQuery
from app.fast_path.literals import reader_of
from app.models.audit import Lease
from app.models.base import Base, Digest, Identifier, UtcDateTime, Uuid
from app.mysql_connection import MySQLConnection
from app.operations.store.transactions import transaction, verify_commit_with
from app.rules.errors import Unavailable
from tests.factories import Factory
from tests.support.cases import each
from tests.support.databases import Database

NOW = datetime(2026, 11, 21, 6, 0, 0, 123456, tzinfo=UTC)


ROW: dict[str, Any] = {"name": "janitor", "holder": "worker-2", "expires_at": NOW}
INSERT = CompiledQuery(
    insert(Lease).values({name: bindparam(name, type_=Lease.__table__.c[name].type) for name in ROW})
)

FIND = CompiledQuery(select(*Lease.__table__.columns).where(Lease.name == bindparam("key")))


ECHO = CompiledQuery(
    select(
        bindparam("text", type_=String(300)),
        bindparam("identifier", type_=Identifier(300)),
        bindparam("raw", type_=LargeBinary()),
        bindparam("number", type_=Integer()),
    )
)


def test_values_keep_their_types(context: Flask) -> None:
    assert INSERT.insert(**ROW) == 1
    found = FIND.first(key=ROW["name"])
    assert found is not None
    assert dict(zip(ROW, found, strict=True)) == ROW
    assert FIND.first(key="another") is None


HOSTILE = [
    "",
    "'",
    '"',
    "\\",
    "\\'; DROP TABLE leases; -- ",
    "\0",
    "%s %d %(x)s %%",
    "x'41'",
    "ü☃🦉",
    "\n\r\x1a",
    " ",
    "0",
]


@pytest.mark.parametrize("value", HOSTILE)
def test_no_value_becomes_part_of_the_statement(context: Flask, value: str) -> None:
    """As text, identifier and bytes, each value is returned unchanged."""
    row = ECHO.first(text=value, identifier=value, raw=value.encode(), number=-7)
    assert row is not None
    texts = [part.encode() if isinstance(part, str) else bytes(part) for part in row[:3]]
    assert texts == [value.encode()] * 3
    assert row[3] == -7
    assert INSERT.insert(**(ROW | {"holder": value})) == 1
    found = FIND.first(key=ROW["name"])
    assert found is not None and found[1] == value


def test_parameter_that_sqlalchemy_would_call_needs_a_value(context: Flask) -> None:
    """It would silently be NULL, with which a token that has expired looks as if it had not."""
    query = CompiledQuery(select(bindparam("number", callable_=lambda: 7, type_=Integer())))
    assert query.first(number=5)[0] == 5
    with pytest.raises(KeyError, match="number"):
        query.first()


def test_none_is_null_for_every_type(context: Flask) -> None:
    row = ECHO.first(text=None, identifier=None, raw=None, number=None)
    assert row == (None,) * 4


@each("name", sorted(Base.metadata.tables))
def test_results_equal_those_of_the_orm(context: Flask, make: Factory, name: str) -> None:
    """Columns are read without SQLAlchemy's processors, with equal values of the same types."""
    make.user(make.client(make.root()).organization, role="admin")
    table = Base.metadata.tables[name]
    key = next(iter(table.primary_key.columns))
    columns = [*table.columns, literal_column("NULL", key.type).label("empty")]
    row = db.session.execute(select(*columns).order_by(*table.primary_key.columns)).first()
    db.session.remove()
    found = CompiledQuery(select(*columns).order_by(*table.primary_key.columns)).first()
    assert (None if found is None else list(found)) == (None if row is None else list(row))
    if row is not None and found is not None:
        assert [type(value) for value in found] == [type(value) for value in row]


@pytest.mark.mariadb
def test_reader_returns_the_result_of_the_types_processor(context: Flask) -> None:
    dialect = engines()[1].dialect
    values = ((Uuid(), b"\1" * 16), (Digest(), b"\2" * 32), (Identifier(64), "clients:write ü".encode()))
    for kind, value in (*values, (UtcDateTime(), datetime(2026, 11, 21, 6, 0, 0, 123456))):  # noqa: DTZ001
        own = kind.dialect_impl(dialect).result_processor(dialect, None) or (lambda given: given)
        read = reader_of(kind, dialect) or (lambda given: given)
        assert read(value) == own(value) and type(read(value)) is type(own(value))
        assert read(None) is own(None) is None


def test_query_works_on_both_engines(context: Flask) -> None:
    """Compiled for each dialect at first use; the other case of this test ran it on the other engine."""
    assert CompiledQuery(select(literal_column("1"))).first() == (1,)
    assert INSERT.insert(**ROW) == 1 and FIND.first(key=ROW["name"]) is not None


def test_query_is_its_own_transaction(context: Flask, database: Database) -> None:
    INSERT.insert(**ROW)
    assert database.count(Lease.__tablename__) == 1


def test_duplicate_row_at_the_first_attempt_is_an_error(context: Flask) -> None:
    """Only on a second attempt may the row be the first attempt's own."""
    INSERT.insert(**ROW)
    with pytest.raises(Exception) as refused:
        INSERT.insert(**ROW)
    assert is_duplicate_key(refused.value)
    assert classify_error(refused.value) is ErrorClass.FINAL


@pytest.mark.mariadb
def test_dead_connections_are_replaced(context: Flask, database: Database) -> None:
    """The server closed them, as at a restart, and no caller gets an error. SQLite has none."""
    INSERT.insert(**ROW)
    mine = "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
    engine = engines()[1]
    with contextlib.ExitStack() as open_together:
        for _ in range(3):
            open_together.enter_context(contextlib.closing(engine.raw_connection()))
    for (number,) in database.query(mine):
        database.query(f"KILL {number}")
    assert FIND.first(key=ROW["name"]) is not None


@pytest.mark.parametrize("method", ["first", "insert"])
def test_unreachable_database_is_a_503(context: Flask, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """P5."""
    engine = engines()[1]
    error = engine.dialect.loaded_dbapi.OperationalError

    def fail(*_: object, **__: object) -> None:
        raise error("database is locked") if engine.dialect.name == "sqlite" else error(2002, "no server")

    monkeypatch.setattr(compiled_query, "_execute", fail)
    monkeypatch.setattr(compiled_query, "DEADLINE_SECONDS", 0.05)
    with pytest.raises(Unavailable):
        getattr(FIND if method == "first" else INSERT, method)(**({"key": "x"} if method == "first" else ROW))


def test_other_errors_are_not_retried(context: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[int] = []
    real = compiled_query._execute

    def count(*args: Any, **named: Any) -> Any:
        attempts.append(1)
        return real(*args, **named)

    monkeypatch.setattr(compiled_query, "_execute", count)
    with pytest.raises(Exception):  # noqa: B017 - each driver has its own
        CompiledQuery(select(literal_column("no_such_column")).select_from(Lease.__table__)).first()
    assert len(attempts) == 1


@pytest.mark.mariadb
@pytest.mark.parametrize("is_there", [True, False])
def test_insert_whose_parent_row_is_missing_is_tried_once_more_after_a_read(
    context: Flask, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    """On a node of a cluster that has not applied the parent yet: a read waits until it has, an insert does not."""
    engine = engines()[1]
    missing = engine.dialect.loaded_dbapi.IntegrityError(1452, "a foreign key constraint fails")
    done: list[str] = []
    real = compiled_query._execute

    def insert_row(*args: Any, **named: Any) -> Any:
        done.append("insert")
        if is_there and "read" in done:
            return real(*args, **named)
        raise missing

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        done.extend(["read"] if statement == "SELECT 1" else [])

    monkeypatch.setattr(compiled_query, "_execute", insert_row)
    event.listen(engine, "before_cursor_execute", note)
    try:
        with contextlib.nullcontext() if is_there else pytest.raises(IntegrityError):
            assert INSERT.insert(**ROW) == 1
    finally:
        event.remove(engine, "before_cursor_execute", note)
    assert done == ["insert", "read", "insert"]


@pytest.mark.parametrize("limit", [1 << 20, 1], ids=["with COMMIT", "at once"])
def test_wrong_statement_that_waited_for_commit_ends_the_transaction(
    context: Flask, database: Database, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """The error is no lost reply to COMMIT, which would be looked into and tried again."""
    monkeypatch.setattr(MySQLConnection, "MAX_WAITING_BYTES", limit)
    # An earlier test may have ended the connections of the pool, which costs an attempt.
    engines()[0].dispose()
    attempts: list[str] = []

    @transaction
    def write(*names: str) -> None:
        attempts.append(names[0])
        for name in names:
            INSERT.write_later(**(ROW | {"name": name}))
        verify_commit_with(lambda: select(Lease.name).where(Lease.name == names[0]))

    with pytest.raises(IntegrityError):
        write("first", "twice", "twice")
    assert attempts == ["first"] and database.count(Lease.__tablename__) == 0
    write("first", "second")
    assert database.count(Lease.__tablename__) == 2


def test_naive_time_and_number_for_text_are_rejected(context: Flask, database: Database) -> None:
    """TK-3: MariaDB would compare a number with every row."""
    with pytest.raises((TypeError, AttributeError)):
        FIND.first(key=0)
    timed = next(name for name, value in ROW.items() if isinstance(value, datetime))
    with pytest.raises(TypeError):
        INSERT.insert(**(ROW | {timed: NOW.replace(tzinfo=None)}))
    assert database.count(Lease.__tablename__) == 0


@each(
    ("code", "meaning"),
    [(code, ErrorClass.RETRY) for code in (1213, 1205, 3101, 1020)]
    + [(code, ErrorClass.RECONNECT) for code in (1047, 1180, 1290, 1836, 1053, 1927, 4031, 2002, 2003, 1040)]
    + [(code, ErrorClass.RECONNECT) for code in (1203, 1226, 3032, 3781, 3782, 3783, 3796, 3797)]
    + [(code, ErrorClass.REFUSED) for code in (1021, 1044, 1045, 1049, 1114, 1129, 1130, 1698, 3118, 4151)]
    + [(code, ErrorClass.UNKNOWN) for code in (2006, 2013, 2055, 1317, 1969, 3024, 3100)]
    + [(code, ErrorClass.FINAL) for code in (1062, 1452, 1406, 1264, 1064, 1146)],
)
def test_database_errors_are_classified(code: int, meaning: ErrorClass) -> None:
    """Classify database errors, as the driver raises them and as SQLAlchemy wraps them."""
    import MySQLdb
    from sqlalchemy.exc import OperationalError

    raised = MySQLdb.OperationalError(code, "words")
    assert classify_error(raised) is meaning
    assert classify_error(OperationalError("SELECT 1", {}, raised)) is meaning
    assert is_duplicate_key(raised) is (code == 1062)


@pytest.fixture
def switched_off(context: Flask) -> Iterator[None]:
    """The application with compiled queries switched off."""
    enabled = context.config["GATEHOUSE"]
    disabled = frozenset({"compiled-queries"})
    context.config["GATEHOUSE"] = dataclasses.replace(enabled, disabled_fast_paths=disabled)
    yield
    context.config["GATEHOUSE"] = enabled


@pytest.mark.usefixtures("switched_off")
def test_queries_that_are_switched_off_give_the_same_results(context: Flask) -> None:
    types = {name: Lease.__table__.c[name].type for name in ROW}
    add = CompiledQuery(
        insert(Lease).values({name: bindparam(name, type_=kind) for name, kind in types.items()})
    )
    find = CompiledQuery(select(*Lease.__table__.columns).where(Lease.name == bindparam("key")))
    assert add.insert(**ROW) == 1 and not add.insert_if_new(**ROW)
    found = find.first(key=ROW["name"])
    assert dict(zip(ROW, found, strict=True)) == ROW and found.holder == ROW["holder"]
    assert find.first(key="another") is None

    @transaction
    def write_and_read() -> int:
        written = add.write(**(ROW | {"name": "second"}))
        return written + len(find.rows(key="second"))

    assert write_and_read() == 2
