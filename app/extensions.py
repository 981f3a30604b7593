"""Flask extensions: created here, configured by the application factory."""

from __future__ import annotations

from typing import Any

from flask_login import LoginManager
from flask_sqlalchemy import SQLAlchemy
from flask_sqlalchemy.session import Session
from flask_wtf import CSRFProtect
from sqlalchemy.engine import Connection, Engine

from app.models.base import Base
from app.open_transaction import open_transaction


class JoiningSession(Session):
    """A session that joins the open transaction on its connection; without one it has a connection of its own.

    Transactions that need no ORM objects, such as those of the token endpoint, then cost no session.
    """

    def get_bind(
        self, mapper: Any = None, clause: Any = None, bind: Engine | Connection | None = None, **options: Any
    ) -> Engine | Connection:
        """Return the connection of the open transaction, or the engine for the table."""
        transaction = open_transaction.get()
        if bind is None and transaction is not None:
            return transaction.connect()
        return super().get_bind(mapper, clause, bind, **options)


db = SQLAlchemy(model_class=Base, disable_autonaming=True, session_options={"class_": JoiningSession})
csrf = CSRFProtect()
login_manager = LoginManager()
