"""The unit of work: one transaction, retried as a whole, and nothing leaves before its COMMIT returned.

``@transaction`` stands on operations that write, ``@read`` on those that only read. The outermost one owns the
session; a ``@transaction`` inside another is a savepoint, so that an outer operation may catch an inner refusal.
Raising rolls back, returning commits. Because the whole function is done again when the server rolled it back, it
must be pure apart from SQL: no mail, no HTTP, no password hashing, nothing changed in memory.
"""

from __future__ import annotations

import functools
import random
import sqlite3
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ParamSpec, TypeVar, cast
from uuid import UUID

from sqlalchemy import Connection, CursorResult, Delete, Select, Update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from app.database import context
from app.extensions import db
from app.rules.errors import Unavailable
from app.rules.identifiers import new_id


class ErrorClass(Enum):
    """What may follow."""

    AGAIN = "the server rolled it back: do the whole unit again"
    ELSEWHERE = "this connection or node is unusable: drop it, then the whole unit again"
    UNKNOWN = "the connection died: whether a COMMIT under way took effect is unknown"
    FINAL = "a result, or a defect: trying again changes nothing"


# 1305, "SAVEPOINT does not exist": a deadlock inside a savepoint rolled back all of the transaction, and the
# savepoint with it; leaving it then hides the deadlock's own 1213.
_AGAIN = {1213, 1205, 3101, 1020, 1305}
_ELSEWHERE = {1047, 1180, 1290, 1836, 1053, 1927, 4031, 2002, 2003, 1040}
_UNKNOWN = {2006, 2013, 2055}
DUPLICATE_KEY = 1062


def classify_error(error: Exception) -> ErrorClass:
    """The class of a database error, as SQLAlchemy or the driver itself raises it."""
    if isinstance(error, PoolTimeout):
        return ErrorClass.ELSEWHERE
    cause = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(cause, sqlite3.OperationalError):
        return ErrorClass.AGAIN if "locked" in str(cause) or "busy" in str(cause) else ErrorClass.FINAL
    code = _code(cause)
    if code in _AGAIN:
        return ErrorClass.AGAIN
    if code in _ELSEWHERE:
        return ErrorClass.ELSEWHERE
    if code in _UNKNOWN or (isinstance(error, DBAPIError) and error.connection_invalidated):
        return ErrorClass.UNKNOWN
    return ErrorClass.FINAL


def is_duplicate_key(error: Exception) -> bool:
    """Whether a unique key refused the row: a result, not a fault."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(cause, sqlite3.IntegrityError):
        return "UNIQUE" in str(cause)
    return _code(cause) == DUPLICATE_KEY


def _code(cause: object) -> int | None:
    arguments = getattr(cause, "args", ())
    return arguments[0] if arguments and isinstance(arguments[0], int) else None


P = ParamSpec("P")
R = TypeVar("R")

MAX_ATTEMPTS = 8
DEADLINE_SECONDS = 2.5
_FIRST_PAUSE_SECONDS = 0.01
_jitter = random.SystemRandom()


@dataclass(slots=True)
class UnitOfWork:
    """The unit of work under way; it outlives its attempts.

    ``nonce`` marks the rows that it claims, so that after a lost answer it knows its own claim from another's.
    """

    reads_only: bool
    nonce: UUID = field(default_factory=new_id)
    values: dict[str, Any] = field(default_factory=dict)
    witness: Callable[[], Select[Any]] | None = None
    events: int = 0
    after_commit: list[Callable[[], None]] = field(default_factory=list)
    connection: Connection | None = None

    def use_connection(self) -> Connection:
        """The connection of the transaction, which has all that the unit holds in objects."""
        db.session.flush()
        if self.connection is None:
            self.connection = db.session.connection()
        return self.connection

    def once(self, name: str, make: Callable[[], R]) -> R:
        """A value that stays the same through all attempts: the token in an answer that may have been lost."""
        if name not in self.values:
            self.values[name] = make()
        value: R = self.values[name]
        return value


_unit: ContextVar[UnitOfWork | None] = ContextVar("gatehouse_unit", default=None)


def is_in_transaction() -> bool:
    """Whether this is inside a unit of work: what is read here must see what it has written."""
    return _unit.get() is not None


def current_unit_of_work() -> UnitOfWork:
    """The unit of work under way. Raises RuntimeError outside of one."""
    unit = _unit.get()
    if unit is None:
        raise RuntimeError("no transaction is under way")
    return unit


def on_commit(act: Callable[[], None]) -> None:
    """``act`` is called once the outermost transaction has committed, and never when it rolled back."""
    current_unit_of_work().after_commit.append(act)


def on_commit_or_now(act: Callable[[], None]) -> None:
    """As ``on_commit``; outside of a unit ``act`` is called at once."""
    if _unit.get() is None:
        act()
    else:
        on_commit(act)


def verify_commit_with(make: Callable[[], Select[Any]]) -> None:
    """The statement finds a row if and only if this unit was committed; asked when a COMMIT's answer was lost."""
    current_unit_of_work().witness = make


def count_changed(statement: Update | Delete) -> int:
    """How many rows the statement changed: what decides who won (law 8)."""
    result = cast(
        CursorResult[Any], db.session.execute(statement.execution_options(synchronize_session=False))
    )
    return result.rowcount


def transaction(function: Callable[P, R]) -> Callable[P, R]:
    """The operation runs in a transaction; see the module. Raises Unavailable when the database cannot."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        unit = _unit.get()
        if unit is None:
            return _outermost(functools.partial(function, *args, **kwargs), reads_only=False)
        if unit.reads_only:
            raise RuntimeError(f"{function.__name__} writes inside a unit that only reads")
        standing = unit.witness, len(unit.after_commit)
        try:
            with db.session.begin_nested():
                return function(*args, **kwargs)
        except BaseException:
            # What was rolled back proves nothing and is followed by nothing, should the outer unit go on.
            unit.witness = standing[0]
            del unit.after_commit[standing[1] :]
            raise

    return run


def read(function: Callable[P, R]) -> Callable[P, R]:
    """The operation reads from one connection, whole and again when the server asks for it."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        if _unit.get() is not None:
            return function(*args, **kwargs)
        return _outermost(functools.partial(function, *args, **kwargs), reads_only=True)

    return run


def _outermost(work: Callable[[], R], *, reads_only: bool) -> R:
    unit = UnitOfWork(reads_only)
    token = _unit.set(unit)
    try:
        with context():
            result = _with_retries(work, unit)
    finally:
        _unit.reset(token)
    for act in unit.after_commit:
        act()
    return result


def _with_retries(work: Callable[[], R], unit: UnitOfWork) -> R:
    deadline = time.monotonic() + DEADLINE_SECONDS
    for attempt in range(1, MAX_ATTEMPTS + 1):
        unit.after_commit.clear()
        unit.witness = None
        unit.events = 0
        unit.connection = None
        db.session.remove()
        try:
            if unit.reads_only:
                db.session.connection(execution_options={"reads_only": True})
            result = work()
            db.session.flush()
        except (DBAPIError, PoolTimeout) as error:
            # Error 1205 rolls back one statement alone: committing after it would keep half a unit.
            db.session.remove()
            meaning = classify_error(error)
            if meaning is ErrorClass.FINAL:
                raise
            _pause_or_give_up(attempt, deadline, error)
            continue
        except BaseException:
            db.session.remove()
            raise
        try:
            db.session.commit()
            return result
        except DBAPIError as error:
            meaning = classify_error(error)
            if meaning is ErrorClass.FINAL:
                raise
            if meaning is ErrorClass.UNKNOWN and not unit.reads_only and _was_committed(unit, error):
                return result
            _pause_or_give_up(attempt, deadline, error)
        finally:
            db.session.remove()
    raise Unavailable


def _was_committed(unit: UnitOfWork, error: Exception) -> bool:
    """Whether the COMMIT whose answer was lost took effect. Raises Unavailable when nobody can tell."""
    db.session.remove()
    if unit.witness is None:
        raise Unavailable from error
    try:
        return db.session.execute(unit.witness()).first() is not None
    except (DBAPIError, PoolTimeout) as unreachable:
        raise Unavailable from unreachable


def _pause_or_give_up(attempt: int, deadline: float, error: Exception) -> None:
    pause = _jitter.uniform(0, _FIRST_PAUSE_SECONDS * 2 ** min(attempt, 6))
    if attempt == MAX_ATTEMPTS or time.monotonic() + pause > deadline:
        raise Unavailable from error
    time.sleep(pause)
