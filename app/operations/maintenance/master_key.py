"""The master key and its database: check at startup that they belong together, and rewrap data keys on rotation."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from sqlalchemy import exc, select, update

from app.config import UnsafeConfiguration, command_line, current
from app.database import engines
from app.models.organization import Organization
from app.operations.store import keyring
from app.operations.store.rows import iterate_rows
from app.operations.store.transactions import count_changed, transaction
from app.rules.actor import Actor
from app.rules.errors import Conflict
from app.rules.sealing import UnsealError

MasterKeyStatus = Literal["fits", "other", "unset", "unknown"]
_BATCH = 100


class RewrapResult(Struct, frozen=True):
    """Numbers of data keys by outcome, and the organizations whose key neither master key unwraps."""

    rewrapped: int
    unchanged: int
    unreadable: tuple[str, ...]


def check_master_key() -> MasterKeyStatus:
    """Check whether this process's master key belongs to the database (KY-6), without writing.

    ``other``: neither it nor the previous one opens root's data key. ``unset``: there is no root organization yet.
    ``unknown``: the database cannot be read now.
    """
    try:
        # This runs before migrations, so it reads only columns that every release has.
        with engines()[0].connect() as connection:
            row = connection.execute(
                select(Organization.id, Organization.data_key).where(Organization.slug == "root")
            ).first()
    except (exc.DBAPIError, exc.TimeoutError):
        return "unknown"
    finally:
        # A server that forks workers after this must not share the connection with them.
        engines()[0].dispose()
    if row is None or row.data_key is None:
        return "unset"
    return "fits" if _opens(row.id, row.data_key) else "other"


def require_master_key() -> None:
    """Raise UnsafeConfiguration if the data keys of this database are wrapped with another master key."""
    if check_master_key() == "other":
        raise UnsafeConfiguration(
            "The master key does not match this database. Restore the matching key from the backup "
            f"({current().instance / 'master.key'}), or set GATEHOUSE_PREVIOUS_MASTER_KEY_FILE to it and run: "
            f"{command_line('keys rewrap')}"
        )


def rewrap_data_keys(actor: Actor) -> RewrapResult:
    """Wrap every organization's data key with the master key, including those under the previous one (SE-8).

    Works conditionally and in batches, so that it can be interrupted, repeated and run twice at once. Sealed data is
    not touched. Raises Conflict if no previous master key is configured.
    """
    actor.require("instance:write")
    if not keyring.has_previous_master_key():
        raise Conflict(
            "Set GATEHOUSE_PREVIOUS_MASTER_KEY, or GATEHOUSE_PREVIOUS_MASTER_KEY_FILE, to the old master key."
        )
    rewrapped, unchanged = 0, 0
    unreadable: list[str] = []
    wrapped_keys = select(Organization.id, Organization.slug, Organization.data_key).where(
        Organization.data_key.is_not(None)
    )
    for organization_id, slug, wrapped in iterate_rows(wrapped_keys, Organization.id, _BATCH):
        try:
            renewed = keyring.rewrap_data_key(organization_id, wrapped)
        except UnsealError:
            unreadable.append(slug)
            continue
        if renewed is None:
            unchanged += 1
        else:
            rewrapped += _store(organization_id, wrapped, renewed)
    return RewrapResult(rewrapped, unchanged, tuple(unreadable))


def _opens(organization_id: str, wrapped: bytes) -> bool:
    try:
        keyring.unwrap_data_key(organization_id, wrapped)
    except UnsealError:
        return False
    return True


@transaction
def _store(organization_id: str, current_key: bytes, new_key: bytes) -> int:
    return count_changed(
        update(Organization)
        .where(Organization.id == organization_id, Organization.data_key == current_key)
        .values(data_key=new_key)
    )
