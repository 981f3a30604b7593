"""Flask extensions, created here and configured by the application factory, and the transaction that sessions join."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from flask import has_app_context
from flask.globals import app_ctx
from flask_login import LoginManager
from flask_sqlalchemy import SQLAlchemy
from flask_sqlalchemy.session import Session
from flask_wtf import CSRFProtect
from sqlalchemy.engine import Connection, Engine

from app.models.base import Base

if TYPE_CHECKING:
    from app.fast_path.transaction_connection import TransactionConnection


class OpenTransaction(Protocol):
    """The open transaction: its connection, the ORM session that joined it, and what runs once it has committed."""

    commit_callbacks: list[Callable[[], object]]
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


def on_commit(callback: Callable[[], object]) -> None:
    """Call ``callback`` once the outermost transaction has committed, and never when it was rolled back."""
    _require_transaction().commit_callbacks.append(callback)


def _require_transaction() -> OpenTransaction:
    transaction = open_transaction.get()
    if transaction is None:
        raise RuntimeError("no transaction is open")
    return transaction


class JoiningSession(Session):
    """A session that joins the open transaction on its connection; without one it has a connection of its own.

    Transactions that need no ORM objects, such as those of the token endpoint, then cost no session.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        transaction = open_transaction.get()
        if transaction is not None:
            transaction.session = self

    def get_bind(
        self, mapper: Any = None, clause: Any = None, bind: Engine | Connection | None = None, **options: Any
    ) -> Engine | Connection:
        """Return the connection of the open transaction, or the engine for the table."""
        transaction = open_transaction.get()
        if bind is None and transaction is not None:
            return transaction.connect()
        return super().get_bind(mapper, clause, bind, **options)


def remove_session() -> None:
    """Close the session that was used outside of transactions, if there is one: its connection is another one."""
    if has_app_context():
        db.session.remove()


def _session_scope() -> int:
    """Return whose session ``db.session`` is: the open transaction's, or that of Flask's application context.

    A transaction then needs no context of Flask.
    """
    transaction = open_transaction.get()
    return hash(app_ctx) if transaction is None else id(transaction)


db = SQLAlchemy(
    model_class=Base,
    disable_autonaming=True,
    session_options={"class_": JoiningSession, "scopefunc": _session_scope},
)
csrf = CSRFProtect()
login_manager = LoginManager()
