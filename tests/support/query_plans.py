"""Plans of the statements that code sends, as the database in use describes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import event

from app.database import engines
from app.extensions import db


def plan_of(run: Callable[[], Any], part: str) -> tuple[Any, str]:
    """Return the result of ``run``, and the plan of the only statement with the part that it sends."""
    seen: list[Any] = []
    listeners = [
        (engine, "before_cursor_execute", lambda *sent: seen.append(sent[2:4])) for engine in set(engines())
    ]
    for listener in listeners:
        event.listen(*listener)
    try:
        result = run()
    finally:
        for listener in listeners:
            event.remove(*listener)
    # A read that is repeated, because its connection was lost, sends the statement again.
    [(statement, parameters)] = {text: values for text, values in seen if part in text}.items()
    explain = "EXPLAIN QUERY PLAN" if db.engine.dialect.name == "sqlite" else "EXPLAIN"
    return result, str(db.session.connection().exec_driver_sql(f"{explain} {statement}", parameters).all())
