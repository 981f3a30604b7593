"""Readiness: whether this process can do its work right now."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.exc import DBAPIError

from app.extensions import db
from app.models.organization import Organization
from app.operations.transaction import read
from app.rules.errors import Unavailable


def require_ready() -> None:
    """Raises Unavailable unless a table can be read: a ping passes on a partitioned node, a table does not."""
    try:
        _read_a_table()
    except DBAPIError as error:
        # Not migrated, no rights, no file: to a load balancer they are one thing.
        raise Unavailable("The database cannot be read.", retry_after=5) from error


@read
def _read_a_table() -> None:
    db.session.execute(select(Organization.id).limit(1)).first()
