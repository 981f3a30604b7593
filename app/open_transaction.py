"""The transaction that ``operations`` opened, as the modules below operations see it."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy.engine import Connection

if TYPE_CHECKING:
    from app.fast_path.transaction_connection import TransactionConnection


class OpenTransaction(Protocol):
    """The open transaction: its connection, the ORM session that joined it, and what runs once it has committed."""

    commit_callbacks: list[Callable[[], None]]
    session: Any

    def connect(self) -> Connection:
        """Return the transaction's connection for a session, which the first use opens."""
        ...

    def use_connection(self) -> TransactionConnection:
        """Return the transaction's connection; everything pending in the session is written first."""
        ...


open_transaction: ContextVar[OpenTransaction | None] = ContextVar("gatehouse_transaction", default=None)


def in_transaction() -> bool:
    """Return whether a transaction is open: what is read then must include what it has written."""
    return open_transaction.get() is not None


def transaction_connection() -> TransactionConnection:
    """Return the connection of the open transaction. Raises RuntimeError outside of one."""
    return _require_transaction().use_connection()


def on_commit(callback: Callable[[], None]) -> None:
    """Call ``callback`` once the outermost transaction has committed, and never when it was rolled back."""
    _require_transaction().commit_callbacks.append(callback)


def _require_transaction() -> OpenTransaction:
    transaction = open_transaction.get()
    if transaction is None:
        raise RuntimeError("no transaction is open")
    return transaction
