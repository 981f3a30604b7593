"""Conditional changes: the number of rows that an UPDATE or DELETE met decides, never an earlier SELECT (law 8)."""

from __future__ import annotations

from typing import Any, cast

from sqlalchemy import CursorResult, Delete, Update

from app.extensions import db


def rows_changed(statement: Update | Delete) -> int:
    """How many rows the statement met, in the transaction under way. Objects in the session are not refreshed."""
    result = db.session.execute(statement.execution_options(synchronize_session=False))
    return cast("CursorResult[Any]", result).rowcount
