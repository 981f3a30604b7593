"""Links to an account, mailed or passed on, which each work once: new passwords and verified email addresses."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import delete, select

from app.extensions import db
from app.models.base import has_key, is_of_user, is_same
from app.models.user import ACTIVE, AccountLink, User
from app.operations.directory.lookups import get_organization_by_id
from app.operations.directory.users import UserSnapshot
from app.operations.sign_in.actor_access import list_permissions_everywhere
from app.operations.store import clock
from app.operations.store.transactions import (
    count_changed,
    current_unit_of_work,
    insert_or_update,
    read,
    transaction,
)
from app.rules.identifiers import digest, is_token_of, new_token
from app.rules.organizations.settings import earliest_expiry

_Permissions = frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class AccountLinkRecord:
    """A valid link without its token, with its account. ``address`` is the email that the link verifies, if any.

    ``permissions`` are those of the account, for a link that was passed on and not mailed.
    """

    organization_id: str
    user_id: UUID
    digest: bytes
    is_mailed: bool
    address: str | None
    email: str
    email_canonical: str
    name: str
    password_changed_at: datetime | None
    permissions: _Permissions


@transaction
def create_link(
    user: UserSnapshot,
    purpose: str,
    *,
    lifetime: timedelta,
    is_mailed: bool,
    address: str | None = None,
) -> tuple[str, datetime]:
    """Create the user's only link for the purpose and return its token and expiry.

    An earlier link becomes invalid (RP-1). This one does when the password or the email changes, and is not valid if
    the email has changed since ``user`` was read: the caller sends it there. One that is not mailed also becomes
    invalid when the user's permissions change: whoever sees it might not have been allowed to see it then (TN-11).
    ``purpose`` is the token's kind.
    ``address`` is the email that the link verifies, if any. Call it in the transaction that audits it.
    """
    organization_id, user_id = user.organization_id, user.id
    password_changed_at = db.session.scalars(
        select(User.password_changed_at).where(has_key(User, organization_id, user_id))
    ).one()
    token: str = current_unit_of_work().stable_value(
        f"link {purpose} {user_id}", lambda: new_token(purpose, organization_id)
    )
    now = clock.now()
    key = {"organization_id": organization_id, "user_id": user_id, "purpose": purpose}
    values = {
        "digest": digest(token),
        "bound_digest": _bound_digest(
            password_changed_at, user.email_canonical, _permissions_of(organization_id, user_id, is_mailed)
        ),
        "is_mailed": is_mailed,
        "address": address,
        "created_at": now,
        "expires_at": now + lifetime,
    }
    insert_or_update(AccountLink, key, values)
    return token, now + lifetime


@read
def find_link(
    organization_id: str, token: str, purpose: str, *, lifetime_seconds: int
) -> AccountLinkRecord | None:
    """Find the link of a token and its active user.

    Return None if the link was used or replaced or has expired, or if what it depends on was changed.
    ``lifetime_seconds`` is the current lifetime of links with the purpose.
    """
    if not is_token_of(token, purpose, organization_id):
        return None
    row = db.session.execute(
        select(
            AccountLink.user_id,
            AccountLink.is_mailed,
            AccountLink.address,
            AccountLink.bound_digest,
            AccountLink.created_at,
            AccountLink.expires_at,
            User.email,
            User.email_canonical,
            User.name,
            User.password_changed_at,
        )
        .join(User, is_same(User.id, AccountLink.user_id))
        .where(
            AccountLink.organization_id == organization_id,
            AccountLink.digest == digest(token),
            User.status == ACTIVE,
        )
    ).first()
    if row is None or earliest_expiry(row.expires_at, row.created_at, lifetime_seconds) <= clock.now():
        return None
    if get_organization_by_id(organization_id, fresh=False).is_before_restore(row.created_at):
        return None
    permissions = _permissions_of(organization_id, row.user_id, row.is_mailed)
    if row.bound_digest != _bound_digest(row.password_changed_at, row.email_canonical, permissions):
        return None
    return AccountLinkRecord(
        organization_id,
        row.user_id,
        digest(token),
        row.is_mailed,
        row.address,
        row.email,
        row.email_canonical,
        row.name,
        row.password_changed_at,
        permissions,
    )


@transaction
def consume_link(link: AccountLinkRecord) -> bool:
    """Delete the link, and return whether this caller was the one to use it, as the row count shows.

    The caller holds the user, who gets no role meanwhile.
    """
    if _permissions_of(link.organization_id, link.user_id, link.is_mailed) != link.permissions:
        return False
    used = count_changed(
        delete(AccountLink).where(
            AccountLink.organization_id == link.organization_id,
            AccountLink.digest == link.digest,
            AccountLink.expires_at > clock.now(),
        )
    )
    return used == 1


@transaction
def revoke_links(organization_id: str, user_id: UUID, purpose: str | None = None) -> None:
    """Delete the user's links, only those with the purpose if one is given."""
    statement = delete(AccountLink).where(is_of_user(AccountLink, organization_id, user_id))
    if purpose is not None:
        statement = statement.where(AccountLink.purpose == purpose)
    count_changed(statement)


def _permissions_of(organization_id: str, user_id: UUID, is_mailed: bool) -> _Permissions:
    return frozenset() if is_mailed else list_permissions_everywhere(organization_id, user_id)


def _bound_digest(
    password_changed_at: datetime | None, email_canonical: str, permissions: _Permissions
) -> bytes:
    """Return the digest of what must not change until a link is used.

    The hash of a password may change: a sign-in renews an outdated one.
    """
    changed = password_changed_at.isoformat() if password_changed_at is not None else ""
    held = (f"\n{organization_id} {permission}" for organization_id, permission in sorted(permissions))
    return hashlib.sha256(f"{changed}\n{email_canonical}{''.join(held)}".encode()).digest()
