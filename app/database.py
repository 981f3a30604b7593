"""The two database engines, and the tenant fence that checks each of their statements (TN-5).

One engine is for transactions, the other for single statements that are their own transaction.

A token request needs one durable INSERT. In autocommit mode that is one round trip; inside a transaction it is
four (begin, insert, commit, and the rollback that resets the connection), and the round trips are what a small
request costs. Both engines use READ COMMITTED: the loser of a race sees the winner's row, and
INSERT … SELECT does not lock the rows that it reads.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from typing import Any

import MySQLdb
from flask import Flask, has_app_context
from sqlalchemy import NullPool, create_engine, event
from sqlalchemy.engine import URL, Connection, Engine, ExceptionContext
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from app import database_engine, sqlite_connection
from app.circuit_breaker import CircuitBreaker, Turns
from app.config import Config, application
from app.database_errors import is_connection_failure, must_leave_node
from app.extensions import db
from app.mysql_connection import MySQLConnection
from app.tracing import tracing

ACROSS: Mapping[str, Any] = {"across_organizations": True}
"""The execution option of a statement for all organizations."""
_TOUCHED = re.compile(r"(?:\bFROM|\bJOIN|\bUPDATE|,)\s+([a-z_]+)(?: AS ([a-z_0-9]+))?(?=[\s,)]|$)")
_NARROWED = re.compile(r"\b(?:WHERE|ON)\b.*", re.DOTALL)
# A value, a list of values or a query of them, on either side; or a condition that no row meets.
_NAMED = re.compile(
    r"organization_id (?:=|IN|<|>|<=|>=) (?:%s|\?|:|'|\(|_binary)|(?:%s|\?) = [a-z_0-9]+\.organization_id"
)
_NOBODYS = re.compile(r"\bWHERE (?:0 = 1|false)\b")
_READ = ("SELECT", "UPDATE", "DELETE", "WITH")
_MAX_KNOWN_STATEMENTS = 20_000


class Unfenced(RuntimeError):
    """A statement does not name an organization: a defect of this service, never an error of the caller."""


class Fence:
    """The tenant fence: no statement reaches rows of organizations without naming an organization.

    MySQL has no row-level security. So the text of each SELECT, UPDATE and DELETE is checked at its first execution: it
    must restrict every table of organizations by ``organization_id``, and one of them to given organizations.
    Statements for all organizations, such as the janitor's batches, have the execution option ``ACROSS``.
    """

    def __init__(self, tables: Callable[[], frozenset[str]]) -> None:
        self._find_tables = tables
        self._tables: frozenset[str] = frozenset()
        self._good: set[str] = set()

    def listen(self, engine: Engine) -> None:
        """Check every statement of the engine."""
        event.listen(engine, "before_cursor_execute", self._before_execution)

    def require(self, statement: str) -> None:
        """Raise Unfenced unless the statement restricts each table of organizations to given ones."""
        if statement in self._good or not statement.lstrip("( \n").startswith(_READ):
            return
        self._tables = self._tables or self._find_tables()
        touched = list(self._touched(statement))
        if touched and _NOBODYS.search(statement) is None:
            narrowing = _NARROWED.search(statement)
            text = narrowing[0] if narrowing else ""
            for name in touched:
                if f"{name}.organization_id" not in text:
                    self.refuse(
                        f"This statement does not restrict {name} to an organization: {statement[:1000]}"
                    )
            if _NAMED.search(text) is None:
                self.refuse(f"This statement names no organization: {statement[:1000]}")
        if len(self._good) < _MAX_KNOWN_STATEMENTS:
            self._good.add(statement)

    def refuse(self, words: str) -> None:
        """Raise Unfenced."""
        raise Unfenced(words)

    def _touched(self, statement: str) -> Iterator[str]:
        for found in _TOUCHED.finditer(statement):
            if found[1] in self._tables:
                yield found[2] or found[1]

    def _before_execution(
        self, _connection: Any, _cursor: Any, statement: str, _parameters: Any, context: Any, _many: bool
    ) -> None:
        options = context.execution_options if context is not None else {}
        if not options.get("across_organizations"):
            self.require(statement)


AUTOCOMMIT = "autocommit"
REPLICA = "replica"
IDLE_SECONDS = 30.0
# A longer use would keep a process with a node that the load balancer has left.
MAX_CONNECTION_SECONDS = 60
# How long a transaction waits for a connection, or on SQLite for its turn, before the request fails with 503.
POOL_WAIT_SECONDS = 2
_ENGINES = "gatehouse engines"
_REPLICA = "gatehouse replica"
_TURNS = "gatehouse turns"
_WRITERS = "gatehouse writers"
_SPAN = "gatehouse span"
# A new connection that tests whether the server answers. The driver counts in whole seconds.
_REACHABLE_SECONDS = 1
_BREAKER = "gatehouse circuit breaker"
FENCE = Fence(
    lambda: frozenset(name for name, table in db.metadata.tables.items() if "organization_id" in table.c)
)
# The server ends the transaction of a frozen process, with its locks. No connection that was idle for so long is used.
FROZEN_SECONDS = MAX_CONNECTION_SECONDS + 30
# Two waits fit into a transaction's deadline of 2.5 seconds: if a row is locked for longer, the response is a 503.
LOCK_WAIT_SECONDS = 1
_SQL_MODE = "STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"


def configure(app: Flask, config: Config) -> None:
    """Both engines configured, with their listeners; nothing connects yet."""
    options = _engine_options(config)
    app.config["SQLALCHEMY_DATABASE_URI"] = config.database_url
    app.config["SQLALCHEMY_ENGINE_OPTIONS"] = options
    app.config["SQLALCHEMY_BINDS"] = {
        AUTOCOMMIT: {
            "url": config.database_url,
            "isolation_level": "AUTOCOMMIT",
            **options,
            "pool_reset_on_return": None,
        }
    }
    if config.database_replica_url:
        app.config["SQLALCHEMY_BINDS"][REPLICA] = {
            **app.config["SQLALCHEMY_BINDS"][AUTOCOMMIT],
            "url": config.database_replica_url,
        }
    db.init_app(app)
    app.extensions[_TURNS] = Turns(2 * config.database_pool)
    app.extensions[_WRITERS] = Turns(1) if config.is_sqlite else None
    with app.app_context():
        app.extensions[_ENGINES] = (db.engine, db.engines[AUTOCOMMIT])
        reach = functools.partial(_is_reachable, db.engine, options["connect_args"])
        # The server has at least one thread more, which remains free for requests that need no database.
        guard = CircuitBreaker(config.LATE_THREADS, reach)
        app.extensions[_BREAKER] = guard
        for engine in app.extensions[_ENGINES]:
            if config.is_sqlite:
                event.listen(engine, "do_connect", sqlite_connection.make_file_private)
            FENCE.listen(engine)
            event.listen(engine, "handle_error", _close_unfinished_transaction)
            if config.is_sqlite:
                event.listen(engine, "connect", sqlite_connection.prepare)
                continue
            is_autocommit = engine is not db.engine
            event.listen(engine, "do_connect", functools.partial(_refuse_while_open, guard))
            event.listen(engine, "do_connect", _connect)
            event.listen(engine, "checkout", functools.partial(_refuse_while_open, guard))
            event.listen(engine, "connect", functools.partial(_prepare_mysql, config, is_autocommit))
            event.listen(engine, "handle_error", _leave_unusable_node)
            event.listen(engine, "checkin", _note_use)
            event.listen(engine, "checkout", _replace_or_ping)
        if config.is_sqlite:
            event.listen(db.engine, "begin", sqlite_connection.begin)
        if (replica := db.engines.get(REPLICA)) is not None:
            FENCE.listen(replica)
            event.listen(replica, "do_connect", _connect)
            event.listen(replica, "connect", functools.partial(_prepare_mysql, config, True))
            event.listen(replica, "checkin", _note_use)
            event.listen(replica, "checkout", _replace_or_ping)
        app.extensions[_REPLICA] = replica


def engines() -> tuple[Engine, Engine]:
    """Return the engines of the current app: (for transactions, for single statements)."""
    pair: tuple[Engine, Engine] = application().extensions[_ENGINES]
    return pair


def replica_engine() -> Engine | None:
    """Return the engine of ``DATABASE_REPLICA_URL``, or None without one; only ``operations/store/replica.py`` uses it.

    A failure there says nothing about the database that is written, so neither the circuit breaker nor the search for
    another node is affected.
    """
    engine: Engine | None = application().extensions[_REPLICA]
    return engine


def trace_statements() -> None:
    """Put each statement of both engines into a span, if ``tracing.query`` is set when it runs."""

    def begin(connection: Connection, _cursor: Any, sql: str, *_: Any) -> None:
        if tracing.query is not None:
            span = connection.info[_SPAN] = tracing.query(sql)
            span.__enter__()

    def end(connection: Connection, *_: Any) -> None:
        if (span := connection.info.pop(_SPAN, None)) is not None:
            span.__exit__(None, None, None)

    def fail(context: ExceptionContext) -> None:
        error = context.original_exception
        if context.connection is not None and (span := context.connection.info.pop(_SPAN, None)) is not None:
            with suppress(type(error)):
                span.__exit__(type(error), error, None)

    for engine in engines():
        event.listen(engine, "before_cursor_execute", begin)
        event.listen(engine, "after_cursor_execute", end)
        event.listen(engine, "handle_error", fail)


def breaker() -> CircuitBreaker:
    """Return the circuit breaker of the current app's database. Each use of the database is a ``with`` block of it."""
    guard: CircuitBreaker = application().extensions[_BREAKER]
    return guard


def _is_reachable(engine: Engine, options: dict[str, Any]) -> bool:
    """Return whether the server answers a new connection. To refuse it is an answer too."""
    if engine.dialect.name == "sqlite":
        return True
    try:
        with closing(_connect_at_once(engine, engine.url, options)) as connection:
            connection.cursor().execute("SELECT 1")
    except MySQLdb.Error as error:
        return not is_connection_failure(error)
    return True


def _connect_at_once(engine: Engine, url: URL, options: dict[str, Any]) -> Any:
    """Return a new connection of the driver that waits for no answer longer than a second. Raises MySQLdb.Error."""
    arguments, named = engine.dialect.create_connect_args(url)
    seconds = dict.fromkeys(("connect_timeout", "read_timeout", "write_timeout"), _REACHABLE_SECONDS)
    return MySQLConnection(*arguments, **{**named, **options, **seconds})


def node_connector() -> Callable[[str, int], Any]:
    """Return a function of a host and port that connects to the node there, in any thread.

    The connection has the account and the TLS settings of ``DATABASE_URL``, commits each statement, and waits for no
    answer longer than a second. The function raises MySQLdb.Error.
    """
    engine = engines()[0]

    def connect(host: str, port: int) -> Any:
        # A socket would lead to the node of this host.
        url = engine.url.set(host=host, port=port).difference_update_query(["unix_socket"])
        return _connect_at_once(engine, url, {"autocommit": True})

    return connect


def _refuse_while_open(guard: CircuitBreaker, *_: Any) -> None:
    """Refuse a connection while the database does not answer, as if it could not be reached."""
    if guard.is_open:
        raise MySQLdb.OperationalError(2003, "The database does not answer.")


def _connect(_dialect: Any, _record: Any, arguments: Any, parameters: Any) -> MySQLConnection:
    return MySQLConnection(*arguments, **parameters)


_left_at = 0.0


def leave_node() -> None:
    """Make this process open a new connection wherever it would use one that exists now.

    A proxy or DNS name then leads to the node that serves writes. Other connections of the process lead to the old one
    too, and a read there would not even fail.
    """
    global _left_at
    _left_at = time.monotonic()


def is_outdated(opened_at: float) -> bool:
    """Return whether a connection that was opened then (monotonic seconds) must be replaced by a new one."""
    return opened_at <= _left_at or time.monotonic() - opened_at > MAX_CONNECTION_SECONDS


def why_not_writable() -> str | None:
    """Return why the database serves no writes, or None if it does. Raises SQLAlchemy's errors.

    The answer is that of a new connection unless a pooled one leads to a writable node.
    """
    engine = engines()[0]
    if engine.dialect.name == "sqlite":
        return None
    reason = _ask_if_writable(engine)
    if reason is not None:
        reason = _ask_if_writable(engine)
        if reason is None:
            leave_node()
    return reason


def _ask_if_writable(engine: Engine) -> str | None:
    with engine.connect() as connection:
        try:
            reason = database_engine.why_not_writable(connection.connection.cursor())
        except MySQLdb.Error as error:
            reason = f"the connection was lost ({error})"
            # Others of the pool were lost with it.
            engine.dispose()
        if reason is not None:
            connection.invalidate()
    return reason


def connection_load() -> dict[str, tuple[int, int, int]]:
    """Return how many threads use, wait for and may use at once the database, and its pooled connections."""
    limits = {"threads": breaker().slots, "transactions": application().extensions[_TURNS]}
    return {name: (turns.taken, turns.waiting, turns.count) for name, turns in limits.items()}


def turn_at_pool() -> AbstractContextManager[None]:
    """Run a ``with`` block that uses one connection of the pool, in the order of arrival.

    Raises sqlalchemy.exc.TimeoutError if none is free for POOL_WAIT_SECONDS.
    """
    return _turn(application().extensions[_TURNS])


def turn_to_write() -> AbstractContextManager[None]:
    """Run a ``with`` block that writes to the database: one after the other on SQLite, in the order of arrival.

    SQLite itself lets a newcomer overtake those that wait, some of them for seconds. Raises
    sqlalchemy.exc.TimeoutError if others write for POOL_WAIT_SECONDS.
    """
    writers: Turns | None = application().extensions[_WRITERS]
    return nullcontext() if writers is None else _turn(writers)


@contextmanager
def _turn(turns: Turns) -> Iterator[None]:
    if not turns.take(POOL_WAIT_SECONDS):
        raise PoolTimeout("every connection of the pool is in use")
    try:
        yield
    finally:
        turns.give_back()


def context() -> AbstractContextManager[object]:
    """Return Flask's application context, which sessions need; a new one unless one is pushed."""
    return nullcontext() if has_app_context() else application().app_context()


def migration_engine(config: Config) -> Engine:
    """Return the engine of migrations, whose statements may take any time: an index of a large table takes minutes."""
    if config.is_sqlite:
        return db.engine
    engine = create_engine(
        config.database_url,
        poolclass=NullPool,
        hide_parameters=True,
        connect_args={"charset": "utf8mb4", "connect_timeout": 2},
    )
    FENCE.listen(engine)
    event.listen(engine, "do_connect", _connect)
    event.listen(engine, "connect", functools.partial(_prepare_mysql, config, False))
    return engine


def _engine_options(config: Config) -> dict[str, Any]:
    options: dict[str, Any] = {
        "pool_size": config.database_pool,
        "max_overflow": config.database_pool,
        "pool_timeout": POOL_WAIT_SECONDS,
        "hide_parameters": True,
    }
    if config.is_sqlite:
        return options | {"connect_args": {"timeout": config.database_timeout, "check_same_thread": False}}
    return options | {
        "pool_recycle": MAX_CONNECTION_SECONDS,
        # A session ends its transaction itself; the pool's own rollback would be a round trip for nothing.
        "pool_reset_on_return": None,
        "connect_args": {
            "charset": "utf8mb4",
            "connect_timeout": 2,
            "read_timeout": config.database_timeout,
            "write_timeout": config.database_timeout,
        },
    }


def _prepare_mysql(config: Config, is_autocommit: bool, connection: Any, record: Any) -> None:
    record.info["opened"] = time.monotonic()
    cursor = connection.cursor()
    cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    name = config.database_engine
    profile = database_engine.PROFILES[
        database_engine.detect(cursor) if name == database_engine.AUTO else name
    ]
    variables = [
        "time_zone = '+00:00'",
        f"sql_mode = '{_SQL_MODE}'",
        f"innodb_lock_wait_timeout = {LOCK_WAIT_SECONDS}",
        f"wait_timeout = {FROZEN_SECONDS}",
        *(profile.statement_variables if is_autocommit else profile.transaction_variables),
    ]
    cursor.execute(f"SET SESSION {', '.join(variables)}")
    cursor.close()


def _close_unfinished_transaction(context: ExceptionContext) -> None:
    """Close a connection whose BEGIN, COMMIT or ROLLBACK failed, such as an interrupted ROLLBACK.

    Its transaction may still be open. In the pool it would keep its locks, and the next use of the connection
    would commit it.
    """
    if context.connection is not None and context.statement is None:
        context.is_disconnect, context.invalidate_pool_on_disconnect = True, False


def _leave_unusable_node(context: ExceptionContext) -> None:
    if must_leave_node(context.original_exception):
        leave_node()


def _note_use(_connection: Any, record: Any) -> None:
    record.info["used"] = time.monotonic()


def _replace_or_ping(connection: Any, record: Any, _proxy: Any) -> None:
    """Replace an outdated connection, and ping one that was idle: a firewall may have dropped it.

    A recently used one is not pinged, because that would be a wasted round trip; if it is stale after all, the
    transaction is retried.
    """
    used = record.info.get("used")
    if used is None:
        return  # It was opened for this use. Should its node be unusable too, the statement says so.
    if is_outdated(record.info["opened"]):
        raise DisconnectionError
    if time.monotonic() - used < IDLE_SECONDS:
        return
    try:
        connection.ping()
    except MySQLdb.Error as error:
        raise DisconnectionError from error
