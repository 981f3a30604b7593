"""What a database error means for the unit of work that met it (scale.md, Retry, by class)."""

from __future__ import annotations

import sqlite3
from enum import Enum

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout


class Meaning(Enum):
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


def meaning_of(error: Exception) -> Meaning:
    """The class of a database error, as SQLAlchemy or the driver itself raises it."""
    if isinstance(error, PoolTimeout):
        return Meaning.ELSEWHERE
    cause = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(cause, sqlite3.OperationalError):
        return Meaning.AGAIN if "locked" in str(cause) or "busy" in str(cause) else Meaning.FINAL
    code = _code(cause)
    if code in _AGAIN:
        return Meaning.AGAIN
    if code in _ELSEWHERE:
        return Meaning.ELSEWHERE
    if code in _UNKNOWN or (isinstance(error, DBAPIError) and error.connection_invalidated):
        return Meaning.UNKNOWN
    return Meaning.FINAL


def is_duplicate_key(error: Exception) -> bool:
    """Whether a unique key refused the row: a result, not a fault."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(cause, sqlite3.IntegrityError):
        return "UNIQUE" in str(cause)
    return _code(cause) == DUPLICATE_KEY


def _code(cause: object) -> int | None:
    arguments = getattr(cause, "args", ())
    return arguments[0] if arguments and isinstance(arguments[0], int) else None
