"""Classification of database errors: whether a transaction can be repeated, and whether the caller may come again."""

from __future__ import annotations

import sqlite3
from enum import Enum

import MySQLdb
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

# The errors of a statement or a connection: SQLAlchemy's, and those of the drivers for statements compiled in advance.
DATABASE_ERRORS = (DBAPIError, PoolTimeout, MySQLdb.Error, sqlite3.Error)


class ErrorClass(Enum):
    """A class of database errors, by how to continue after one."""

    RETRY = "the server rolled the transaction back: run it again"
    RECONNECT = "this connection or node is unusable: drop it, then run the transaction again"
    UNKNOWN = (
        "the connection was lost or the statement interrupted: a COMMIT may or may not have taken effect"
    )
    REFUSED = "the database is full, read-only, gone or denied: running it again at once changes nothing, later it may"
    FINAL = "a result or a defect: running it again changes nothing"


# Error 1305, "SAVEPOINT does not exist", hides a deadlock: it rolled back the whole transaction together with the
# savepoint, and releasing the savepoint then fails before error 1213 is reported.
_RETRY_CODES = {1213, 1205, 3101, 1020, 1305}
# Group replication did not begin the statement: 3781 to 3783 while a new primary catches up, 3796 and 3797 on a member
# that its group has expelled or that has not caught up yet, 3032 (offline mode) on one that could not return.
_GROUP_CODES = {3032, 3781, 3782, 3783, 3796, 3797}
# 1040, 1203 and 1226: the server, or this account, has no connection left.
_RECONNECT_CODES = {1047, 1180, 1290, 1836, 1053, 1927, 4031, 2002, 2003, 1040, 1203, 1226} | _GROUP_CODES
# 1317: KILL QUERY. 1969 and 3024: the server's own limit on the time of a statement, in MariaDB and in MySQL.
# 3100: group replication failed during a COMMIT, which the other members may have received.
_UNKNOWN_CODES = {2006, 2013, 2055, 1317, 1969, 3024, 3100}
# The node no longer serves writes, or anything: Galera without quorum, a writer that became a replica, or a
# member that lost its group.
_LEAVE_NODE_CODES = {1047, 1290, 1836, 3100} | _GROUP_CODES
# The disk or the table space is full.
_FULL_CODES = {1021, 1114}
# The server knows no such account, password, database or host, or has locked or blocked it: perhaps while an operator
# changes the password.
_DENIED_CODES = {1044, 1045, 1049, 1129, 1130, 1698, 3118, 4151}
_REFUSED_CODES = _FULL_CODES | _DENIED_CODES
# The server answered that the statement, or one of its values, is wrong.
_FINAL_ERRORS = (MySQLdb.IntegrityError, MySQLdb.DataError, MySQLdb.ProgrammingError)
_SQLITE_BUSY = ("locked", "busy")
_SQLITE_REFUSED = ("disk is full", "readonly database", "unable to open database file", "disk I/O error")
DUPLICATE_KEY = 1062
_MISSING_PARENT = 1452
_REASONS: dict[int | None, str] = {
    1213: "deadlock",
    1305: "deadlock",
    3101: "certification",
    1205: "lock_wait",
}


def classify_error(error: Exception) -> ErrorClass:
    """Classify a database error, whether SQLAlchemy or the driver raised it."""
    if isinstance(error, PoolTimeout):
        return ErrorClass.RECONNECT
    cause = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(cause, sqlite3.OperationalError):
        return _classify_sqlite_error(str(cause))
    code = _error_code(cause)
    if code in _RETRY_CODES:
        return ErrorClass.RETRY
    if code in _RECONNECT_CODES:
        return ErrorClass.RECONNECT
    if code in _REFUSED_CODES:
        return ErrorClass.REFUSED
    # SQLAlchemy calls every connection invalidated whose COMMIT failed, also by a statement that was sent with it.
    if isinstance(cause, _FINAL_ERRORS) and not is_connection_failure(cause):
        return ErrorClass.FINAL
    if code in _UNKNOWN_CODES or (isinstance(error, DBAPIError) and error.connection_invalidated):
        return ErrorClass.UNKNOWN
    return ErrorClass.FINAL


def _classify_sqlite_error(message: str) -> ErrorClass:
    if any(words in message for words in _SQLITE_BUSY):
        return ErrorClass.RETRY
    return ErrorClass.REFUSED if any(words in message for words in _SQLITE_REFUSED) else ErrorClass.FINAL


def retry_reason(error: Exception) -> str:
    """Return why a transaction is repeated after this error, as metrics name it."""
    code = _error_code(error.orig if isinstance(error, DBAPIError) else error)
    if code in _REASONS or classify_error(error) is not ErrorClass.RETRY:
        return _REASONS.get(code, "connection")
    return "lock_wait" if code is None else "other"


def is_temporary(error: Exception) -> bool:
    """Return whether the same request may succeed later, so that the response is 503."""
    return classify_error(error) is not ErrorClass.FINAL


def must_leave_node(error: BaseException | None) -> bool:
    """Return whether the driver's error says that this node no longer serves requests, but another one may.

    The connection works, so it would be used again and again unless it is closed.
    """
    return _error_code(error) in _LEAVE_NODE_CODES


def is_connection_failure(error: BaseException) -> bool:
    """Return whether the driver itself made this error, because no answer of the server arrived."""
    return 2000 <= (_error_code(error) or 0) < 3000


def is_duplicate_key(error: Exception) -> bool:
    """Return whether a unique key rejected the row, which is a result and not a fault."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(cause, sqlite3.IntegrityError):
        return "UNIQUE" in str(cause)
    return _error_code(cause) == DUPLICATE_KEY


def is_missing_parent(error: Exception) -> bool:
    """Return whether a foreign key rejected the row, because the row that it refers to is not there, or not yet."""
    return _error_code(error.orig if isinstance(error, DBAPIError) else error) == _MISSING_PARENT


def _error_code(cause: object) -> int | None:
    arguments = getattr(cause, "args", ())
    return arguments[0] if arguments and isinstance(arguments[0], int) else None
