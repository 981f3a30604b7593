"""The master key and the database belong together, and part only in order: checked at start, rewrapped on command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import exc, select, update

from app.config import UnsafeConfiguration, current
from app.database import engines
from app.extensions import db
from app.models.organization import Organization
from app.operations.store import keyring
from app.operations.store.transactions import count_changed, read, transaction
from app.rules.actor import Actor
from app.rules.errors import Conflict
from app.rules.sealing import UnsealError

Fit = Literal["fits", "other", "unset", "unknown"]
_BATCH = 100


@dataclass(frozen=True, slots=True)
class Rewrapped:
    """How many data keys were rewrapped, how many stood under the new key, and whose neither key opens."""

    rewrapped: int
    standing: int
    unreadable: tuple[str, ...]


def master_key_fits() -> Fit:
    """Whether this process's master key is the database's (KY-6); nothing is written.

    ``other``: it opens root's data key as little as the previous one does. ``unset``: there is no root yet.
    ``unknown``: the database cannot say now.
    """
    try:
        # Two columns that every release has had: this is asked before migrations have run.
        with engines()[0].connect() as connection:
            row = connection.execute(
                select(Organization.id, Organization.data_key).where(Organization.slug == "root")
            ).first()
    except (exc.DBAPIError, exc.TimeoutError):
        return "unknown"
    finally:
        # A server that forks its workers after this must not share the connection with them.
        engines()[0].dispose()
    if row is None or row.data_key is None:
        return "unset"
    return "fits" if _opens(row.id, row.data_key) else "other"


def require_master_key() -> None:
    """Raise UnsafeConfiguration when this database's keys are wrapped under another master key; else serve."""
    if master_key_fits() == "other":
        raise UnsafeConfiguration(
            "The master key is not the one that this database's keys are wrapped with. Restore the one that belongs "
            f"to it ({current().instance / 'master.key'} of its backup), or name it in "
            "GATEHOUSE_PREVIOUS_MASTER_KEY_FILE and run: flask --app wsgi keys rewrap"
        )


def rewrap_data_keys(actor: Actor) -> Rewrapped:
    """Every organization's data key is wrapped under the master key, those under the previous one too (SE-8).

    A batch at a time and conditionally: killed, it goes on where it stopped, and two at once do no harm. What data
    keys seal is not touched. Raises Conflict when no previous master key is configured.
    """
    actor.require("instance:write")
    if not keyring.has_previous_master_key():
        raise Conflict(
            "Set GATEHOUSE_PREVIOUS_MASTER_KEY, or GATEHOUSE_PREVIOUS_MASTER_KEY_FILE, to the old master key."
        )
    rewrapped, standing = 0, 0
    unreadable: list[str] = []
    after = ""
    while page := _page(after):
        for organization_id, slug, wrapped in page:
            try:
                renewed = keyring.rewrap_data_key(organization_id, wrapped)
            except UnsealError:
                unreadable.append(slug)
                continue
            if renewed is None:
                standing += 1
            else:
                rewrapped += _store(organization_id, wrapped, renewed)
        after = page[-1][0]
    return Rewrapped(rewrapped, standing, tuple(unreadable))


def _opens(organization_id: str, wrapped: bytes) -> bool:
    try:
        keyring.unwrap_data_key(organization_id, wrapped)
    except UnsealError:
        return False
    return True


@read
def _page(after: str) -> Sequence[tuple[str, str, bytes]]:
    columns = select(Organization.id, Organization.slug, Organization.data_key)
    rows = db.session.execute(
        columns.where(Organization.id > after, Organization.data_key.is_not(None))
        .order_by(Organization.id)
        .limit(_BATCH)
    )
    return [
        (organization_id, slug, wrapped) for organization_id, slug, wrapped in rows if wrapped is not None
    ]


@transaction
def _store(organization_id: str, standing: bytes, renewed: bytes) -> int:
    return count_changed(
        update(Organization)
        .where(Organization.id == organization_id, Organization.data_key == standing)
        .values(data_key=renewed)
    )
