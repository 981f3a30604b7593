"""The passkeys of people: found, listed and counted, within one organization."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import delete, func, select

from app.extensions import db
from app.models.passkey import Passkey, PasskeyHandle
from app.models.user import ACTIVE, User
from app.operations.transaction import count_changed, read, transaction
from app.rules.identifiers import public_id
from app.rules.people.passkeys import MOST_PER_USER, Descriptor

PREFIX = "pky"
UNSAID = UUID(int=0)


@dataclass(frozen=True, slots=True)
class PasskeyView:
    """A passkey without its key. ``aaguid`` is None where the authenticator does not say what it is."""

    id: UUID
    user_id: UUID
    name: str
    may_sync: bool
    is_synced: bool
    signs_in_alone: bool
    transports: tuple[str, ...]
    aaguid: UUID | None
    user_agent: str
    created_at: datetime
    last_used_at: datetime | None

    @property
    def public_id(self) -> str:
        """``pky_…``."""
        return public_id(PREFIX, self.id)


@dataclass(frozen=True, slots=True)
class StoredKey:
    """What an answer is verified with, and whose it is. ``handle`` is what authenticators call them."""

    id: UUID
    user_id: UUID
    name: str
    public_key: bytes
    sign_count: int
    may_sync: bool
    handle: str
    email: str
    user_status: str


@read
def passkeys_of(organization_id: str, user_id: UUID) -> tuple[PasskeyView, ...]:
    """The user's passkeys, the newest first."""
    rows = db.session.scalars(
        select(Passkey)
        .where(Passkey.organization_id == organization_id, Passkey.user_id == user_id)
        .order_by(Passkey.id.desc())
        .limit(10 * MOST_PER_USER)
    )
    return tuple(view_of(row) for row in rows)


@read
def count_of_users(organization_id: str, user_ids: Collection[UUID]) -> Mapping[UUID, int]:
    """How many passkeys each of at most a page of users has; who has none is left out."""
    if not user_ids:
        return {}
    rows = db.session.execute(
        select(Passkey.user_id, func.count())
        .where(Passkey.organization_id == organization_id, Passkey.user_id.in_(user_ids))
        .group_by(Passkey.user_id)
    )
    return {row[0]: row[1] for row in rows}


@read
def has_passkey_that_signs_in(organization_id: str, user_id: UUID) -> bool:
    """Whether the user could sign in by a passkey alone."""
    found = db.session.scalar(
        select(Passkey.id)
        .where(
            Passkey.organization_id == organization_id,
            Passkey.user_id == user_id,
            Passkey.signs_in_alone.is_(True),
        )
        .limit(1)
    )
    return found is not None


@read
def some_passkey_signs_in(organization_id: str) -> bool:
    """Whether anybody of the organization who may sign in has a passkey that is enough for it."""
    found = db.session.scalar(
        select(Passkey.id)
        .join(User, (User.organization_id == Passkey.organization_id) & (User.id == Passkey.user_id))
        .where(
            Passkey.organization_id == organization_id,
            Passkey.signs_in_alone.is_(True),
            User.status == ACTIVE,
        )
        .limit(1)
    )
    return found is not None


@read
def descriptors_of(organization_id: str, user_id: UUID) -> tuple[Descriptor, ...]:
    """The user's passkeys as browsers are told of them."""
    rows = db.session.execute(
        select(Passkey.credential_id, Passkey.transports)
        .where(Passkey.organization_id == organization_id, Passkey.user_id == user_id)
        .order_by(Passkey.id.desc())
        .limit(10 * MOST_PER_USER)
    )
    return tuple(Descriptor(credential_id, tuple(ways.split())) for credential_id, ways in rows)


@read
def find_key(organization_id: str, credential_id: str) -> StoredKey | None:
    """The key of that credential in this organization; another's is as unknown as one that never was."""
    row = db.session.execute(
        select(
            Passkey.id,
            Passkey.user_id,
            Passkey.name,
            Passkey.public_key,
            Passkey.sign_count,
            Passkey.may_sync,
            PasskeyHandle.handle,
            User.email,
            User.status,
        )
        .join(
            PasskeyHandle,
            (PasskeyHandle.organization_id == Passkey.organization_id)
            & (PasskeyHandle.user_id == Passkey.user_id),
        )
        .join(User, (User.organization_id == Passkey.organization_id) & (User.id == Passkey.user_id))
        .where(Passkey.organization_id == organization_id, Passkey.credential_id == credential_id)
    ).first()
    return None if row is None else StoredKey(*row)


@transaction
def remove_all(organization_id: str, user_id: UUID) -> int:
    """The user has no passkey any more, nor a name that authenticators know; part of the unit that audits it.

    Returns how many there were.
    """
    removed = count_changed(
        delete(Passkey).where(Passkey.organization_id == organization_id, Passkey.user_id == user_id)
    )
    count_changed(
        delete(PasskeyHandle).where(
            PasskeyHandle.organization_id == organization_id, PasskeyHandle.user_id == user_id
        )
    )
    return removed


def view_of(row: Passkey) -> PasskeyView:
    """The row as others may see it."""
    return PasskeyView(
        row.id,
        row.user_id,
        row.name,
        row.may_sync,
        row.is_synced,
        row.signs_in_alone,
        tuple(row.transports.split()),
        None if row.aaguid == UNSAID else row.aaguid,
        row.user_agent,
        row.created_at,
        row.last_used_at,
    )
