"""One connection for each thread, for statements that are their own transaction.

Handing a connection out of a pool and taking it back costs a fifth of what a token costs; a thread that answers
token requests all day keeps its own. It is closed when its thread ends.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from sqlalchemy.engine import Engine
from sqlalchemy.pool import PoolProxiedConnection

from app.database import IDLE_SECONDS


class _Held(threading.local):
    def __init__(self) -> None:
        self.connections: dict[Engine, tuple[PoolProxiedConnection, float]] = {}


_held = _Held()


def driver_connection(engine: Engine) -> Any:
    """The calling thread's connection of the driver. Raises the driver's error when there can be none."""
    tick = time.monotonic()
    held = _held.connections.get(engine)
    if held is None:
        connection = engine.raw_connection()
        connection.detach()
    else:
        connection, used = held
        # A firewall may have dropped it without a word.
        if tick - used > IDLE_SECONDS and engine.dialect.name != "sqlite":
            _ask(engine, connection)
    _held.connections[engine] = (connection, tick)
    return connection.dbapi_connection


def discard(engine: Engine) -> None:
    """The calling thread's connection is of no use; the next statement gets another."""
    held = _held.connections.pop(engine, None)
    if held is not None:
        held[0].close()


def _ask(engine: Engine, connection: PoolProxiedConnection) -> None:
    driver: Any = connection.dbapi_connection
    try:
        driver.ping()
    except engine.dialect.loaded_dbapi.Error:
        discard(engine)
        raise
