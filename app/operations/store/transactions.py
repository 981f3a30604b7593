"""Database transactions around operations, with retries and callbacks after the commit.

Decorate an operation that writes with ``@transaction`` and one that only reads with ``@read``. The outermost call owns
the session. A ``@transaction`` inside another one is a savepoint, so that the outer operation may catch an error of
the inner one. A ``@transaction_part`` is none: its error ends the whole transaction, and it saves two round trips.
Returning commits and raising rolls back.

If the server rolls the transaction back (a deadlock, a lost connection), or the function raises ``OutdatedRead``
because the row it read has changed, the whole function runs again. It must therefore have no side effects except SQL:
no email, no HTTP, no password hashing, no changes to objects in memory.
"""

from __future__ import annotations

import functools
import itertools
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, ParamSpec, TypeVar, cast
from uuid import UUID

from msgspec import Struct, field
from sqlalchemy import Connection, CursorResult, Delete, Select, Update
from sqlalchemy.dialects import mysql, sqlite
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from app import metrics
from app.database import breaker, turn_at_pool, turn_to_write
from app.database_errors import ErrorClass, classify_error, is_duplicate_key, retry_reason
from app.extensions import db, open_transaction, remove_session
from app.extensions import in_transaction as in_transaction
from app.extensions import on_commit as on_commit
from app.fast_path.transaction_connection import TransactionConnection, open_connection
from app.models.base import Base
from app.rules.errors import DomainError, Unavailable
from app.rules.identifiers import new_id

P = ParamSpec("P")
R = TypeVar("R")

# Attempts that the database rolled back. Lost connections are limited by the deadline alone, because after a restart
# of the database each connection of the pool may be lost.
MAX_ATTEMPTS = 8
MAX_OUTDATED_READS = 30
DEADLINE_SECONDS = 2.5
_FIRST_PAUSE_SECONDS = 0.01
_jitter = random.SystemRandom()


class OutdatedRead(Exception):
    """A row that the transaction has read was changed since: roll it back and run it again.

    ``refusal`` is raised if others are faster every time, by default Unavailable.
    """

    def __init__(self, refusal: DomainError | None = None) -> None:
        super().__init__()
        self.refusal = refusal


class UnitOfWork(Struct):
    """State of the current transaction, shared by all its attempts.

    ``nonce`` marks the rows that it claims, so that after a lost reply it recognizes its own claim.
    """

    read_only: bool
    nonce: UUID = field(default_factory=new_id)
    values: dict[str, Any] = field(default_factory=dict)
    make_commit_query: Callable[[], Select[Any]] | None = None
    has_failed_part: bool = False
    event_count: int = 0
    commit_callbacks: list[Callable[[], object]] = field(default_factory=list)
    connection: TransactionConnection | None = None
    session: Any = None

    def connect(self) -> Connection:
        """Return the connection of the transaction for a session, which joins it. The first use opens it."""
        return self._open_connection().join()

    def use_connection(self) -> TransactionConnection:
        """Write what is pending in the session and return the connection of the transaction."""
        if self.session is not None:
            self.session.flush()
            if self.session.in_nested_transaction():
                # The session sets its savepoint at its own first statement, and this one may come before.
                self.session.connection()
        return self._open_connection()

    def _open_connection(self) -> TransactionConnection:
        if self.connection is None:
            self.connection = open_connection(read_only=self.read_only)
        return self.connection

    def commit(self) -> None:
        """Write what is pending in the session and commit, if anything was written.

        Raises RuntimeError if a part of the transaction failed and the operation has gone on.
        """
        if self.has_failed_part:
            raise RuntimeError(
                "a part of this transaction failed: an operation that goes on needs a savepoint"
            )
        if self.read_only:
            return
        if self.session is not None:
            self.session.commit()
        if self.connection is not None:
            self.connection.commit()

    def close(self, *, unusable: bool = False) -> None:
        """Roll back and give the connection back, or close it if it is ``unusable``.

        A connection that is lost during the rollback needs none: the server rolls back lost connections.
        """
        connection, self.connection = self.connection, None
        try:
            self._close(connection, unusable=unusable)
        except (DBAPIError, PoolTimeout) as error:
            if classify_error(error) is ErrorClass.FINAL:
                raise
            self._close(connection, unusable=True)

    def _close(self, connection: TransactionConnection | None, *, unusable: bool) -> None:
        if unusable and connection is not None:
            connection.invalidate()
        if self.session is not None:
            db.session.remove()
            self.session = None
        if connection is not None:
            connection.close()

    def stable_value(self, name: str, make: Callable[[], R]) -> R:
        """Return a value that is made once and is the same in every attempt, such as a token or an id.

        After a lost reply the caller must receive the token that was stored.
        """
        if name not in self.values:
            self.values[name] = make()
        value: R = self.values[name]
        return value


def _open_unit_of_work() -> UnitOfWork | None:
    # Only this module opens transactions, so the open one is always a UnitOfWork.
    return cast(UnitOfWork | None, open_transaction.get())


def current_unit_of_work() -> UnitOfWork:
    """Return the current unit of work. Raises RuntimeError if no transaction is open."""
    unit_of_work = _open_unit_of_work()
    if unit_of_work is None:
        raise RuntimeError("no transaction is open")
    return unit_of_work


def on_commit_or_now(callback: Callable[[], object]) -> None:
    """Call ``callback`` after the commit, or immediately if no transaction is open."""
    if not in_transaction():
        callback()
    else:
        on_commit(callback)


def verify_commit_with(make_query: Callable[[], Select[Any]]) -> None:
    """Set the query that tells whether this transaction was committed if the reply to COMMIT is lost.

    The query must find a row if and only if the transaction was committed.
    """
    current_unit_of_work().make_commit_query = make_query


def count_changed(statement: Update | Delete) -> int:
    """Execute the statement and return how many rows it changed, which decides between concurrent callers."""
    result = cast(
        CursorResult[Any], db.session.execute(statement.execution_options(synchronize_session=False))
    )
    return result.rowcount


def insert_or_update(
    model: type[Base], key: Mapping[str, Any], values: Mapping[str, Any], **new: Any
) -> None:
    """Set the values of the row with this unique key, or insert it with them and ``new``. No values: insert or lock it.

    An INSERT that fails on the key leaves a shared lock on the row, and of two transactions that go on to update it one
    deadlocks. This statement locks it exclusively.
    """
    row, changes = {**new, **key, **values}, dict(values or key)
    if db.session.connection().dialect.name == "sqlite":
        lite = sqlite.insert(model).values(row)
        db.session.execute(lite.on_conflict_do_update(index_elements=list(key), set_=changes))
    else:
        db.session.execute(mysql.insert(model).values(row).on_duplicate_key_update(changes))


@contextmanager
def savepoint(*, on_duplicate: DomainError | OutdatedRead) -> Iterator[None]:
    """Run a ``with`` block in a savepoint, and raise ``on_duplicate`` if it violates a unique key."""
    try:
        with db.session.begin_nested():
            yield
    except IntegrityError as error:
        if not is_duplicate_key(error):
            raise
        raise on_duplicate from error


def transaction(function: Callable[P, R]) -> Callable[P, R]:
    """Run the operation in a transaction. Raises Unavailable if the database cannot complete it."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        unit_of_work = _open_unit_of_work()
        if unit_of_work is None:
            return _run_outermost(functools.partial(function, *args, **kwargs), read_only=False)
        if unit_of_work.read_only:
            raise RuntimeError(f"{function.__name__} writes inside a read-only operation")
        commit_query, callbacks = unit_of_work.make_commit_query, len(unit_of_work.commit_callbacks)
        has_failed_part = unit_of_work.has_failed_part
        try:
            with db.session.begin_nested():
                return function(*args, **kwargs)
        except BaseException:
            # The outer transaction may continue. What the savepoint wrote is gone, so it can neither prove the commit
            # nor run its callbacks.
            unit_of_work.make_commit_query = commit_query
            unit_of_work.has_failed_part = has_failed_part
            del unit_of_work.commit_callbacks[callbacks:]
            raise

    return run


def transaction_part(function: Callable[P, R]) -> Callable[P, R]:
    """Run the operation as a part of the open transaction, or in one of its own if none is open.

    It is no savepoint. If it raises, the whole transaction cannot be committed any more.
    """
    alone = transaction(function)

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        unit_of_work = _open_unit_of_work()
        if unit_of_work is None or unit_of_work.read_only:
            return alone(*args, **kwargs)
        try:
            return function(*args, **kwargs)
        except BaseException:
            unit_of_work.has_failed_part = True
            raise

    return run


def read(function: Callable[P, R]) -> Callable[P, R]:
    """Run the operation on one connection without writing, and run it again if the server asks for it."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        if in_transaction():
            return function(*args, **kwargs)
        return _run_outermost(functools.partial(function, *args, **kwargs), read_only=True)

    return run


def _run_outermost(work: Callable[[], R], *, read_only: bool) -> R:
    remove_session()
    unit_of_work = UnitOfWork(read_only)
    token = open_transaction.set(unit_of_work)
    try:
        with (
            breaker(),
            nullcontext() if read_only else turn_to_write(),
            turn_at_pool(),
        ):
            result = _run_with_retries(work, unit_of_work)
    except PoolTimeout as error:
        raise Unavailable from error
    finally:
        open_transaction.reset(token)
    for callback in unit_of_work.commit_callbacks:
        callback()
    return result


def _run_with_retries(work: Callable[[], R], unit_of_work: UnitOfWork) -> R:
    deadline = time.monotonic() + DEADLINE_SECONDS
    attempts = outdated_reads = 0
    for turn in itertools.count(1):
        unit_of_work.commit_callbacks.clear()
        unit_of_work.make_commit_query = None
        unit_of_work.has_failed_part = False
        unit_of_work.event_count = 0
        try:
            result = work()
            if unit_of_work.session is not None:
                unit_of_work.session.flush()
        except OutdatedRead as outdated:
            # The other request has finished. Of many that change the same row, one gets through each time: a growing
            # pause separates the rest.
            unit_of_work.close()
            outdated_reads += 1
            pause = _jitter.uniform(0, _FIRST_PAUSE_SECONDS * min(outdated_reads - 1, 10))
            if outdated_reads == MAX_OUTDATED_READS or time.monotonic() + pause > deadline:
                if outdated.refusal is not None:
                    raise outdated.refusal from None
                break
            metrics.recorder.count(metrics.RETRIES, "outdated_read")
            time.sleep(pause)
            continue
        except (DBAPIError, PoolTimeout) as error:
            # Error 1205 rolls back a single statement. Committing after it would store half of the changes.
            error_class = classify_error(error)
            unit_of_work.close(unusable=error_class is ErrorClass.RECONNECT)
            if error_class is ErrorClass.FINAL:
                raise
            attempts += error_class is ErrorClass.RETRY
            _pause_or_give_up(turn, attempts, deadline, error, error_class)
            continue
        except BaseException:
            unit_of_work.close()
            raise
        try:
            unit_of_work.commit()
            return result
        except DBAPIError as error:
            # SQLite may leave the transaction open. In the pool it would keep its locks, and no other one could begin.
            unit_of_work.close(unusable=True)
            error_class = classify_error(error)
            if error_class is ErrorClass.FINAL:
                raise
            if (
                error_class is ErrorClass.UNKNOWN
                and not unit_of_work.read_only
                and _was_committed(unit_of_work, error)
            ):
                return result
            attempts += error_class is ErrorClass.RETRY
            _pause_or_give_up(turn, attempts, deadline, error, error_class)
        finally:
            unit_of_work.close()
    metrics.recorder.count(metrics.FAILURES)
    raise Unavailable


def _was_committed(unit_of_work: UnitOfWork, error: Exception) -> bool:
    """Return whether the COMMIT whose reply was lost took effect. Raises Unavailable if this cannot be determined."""
    unit_of_work.close()
    if unit_of_work.make_commit_query is None:
        raise Unavailable from error
    try:
        return unit_of_work.connect().execute(unit_of_work.make_commit_query()).first() is not None
    except (DBAPIError, PoolTimeout) as unreachable:
        raise Unavailable from unreachable


def _pause_or_give_up(
    turn: int, attempts: int, deadline: float, error: Exception, error_class: ErrorClass
) -> None:
    pause = _jitter.uniform(0, _FIRST_PAUSE_SECONDS * 2 ** min(turn, 6))
    is_over = attempts == MAX_ATTEMPTS or time.monotonic() + pause > deadline
    if is_over or error_class is ErrorClass.REFUSED or breaker().is_open:
        metrics.recorder.count(metrics.FAILURES)
        raise Unavailable from error
    metrics.recorder.count(metrics.RETRIES, retry_reason(error))
    time.sleep(pause)
