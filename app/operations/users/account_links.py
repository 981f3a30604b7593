"""Account links: one single-use link per user and purpose, bound to a value that must not change."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from app.extensions import db
from app.models.user import AccountLink
from app.operations.store import clock
from app.operations.store.transactions import count_changed, current_unit_of_work, read, transaction
from app.rules.organizations.settings_effects import earliest_expiry
from app.rules.token_values import digest, new_token, parse_token


@dataclass(frozen=True, slots=True)
class AccountLinkRecord:
    """An unexpired link without its token."""

    organization_id: str
    user_id: UUID
    purpose: str
    is_mailed: bool
    digest: bytes
    bound_digest: bytes
    expires_at: datetime

    def is_bound_to(self, value: str) -> bool:
        """Return whether the value is unchanged since the link was created."""
        return self.bound_digest == _digest_of(value)


@transaction
def create_link(
    organization_id: str,
    user_id: UUID,
    purpose: str,
    *,
    bound_to: str,
    lifetime: timedelta,
    is_mailed: bool,
    address: str | None = None,
) -> tuple[str, datetime]:
    """Create the user's only link for the purpose and return its token and expiry.

    An earlier link becomes invalid (RP-1). ``purpose`` is the token's kind. ``bound_to`` must not change
    until the link is used. ``address`` is the email that the link verifies, if any. Call it in the
    transaction that audits it.
    """
    token: str = current_unit_of_work().stable_value(
        f"link {purpose} {user_id}", lambda: new_token(purpose, organization_id)
    )
    now = clock.now()
    key = {"organization_id": organization_id, "user_id": user_id, "purpose": purpose}
    values = {
        "digest": digest(token),
        "bound_digest": _digest_of(bound_to),
        "is_mailed": is_mailed,
        "address": address,
        "created_at": now,
        "expires_at": now + lifetime,
    }
    if not _replace(key, values):
        try:
            with db.session.begin_nested():
                db.session.execute(insert(AccountLink).values(**key, **values))
        except IntegrityError:
            # A concurrent request has created the first link. This later one replaces it.
            _replace(key, values)
    return token, now + lifetime


@read
def find_link(
    organization_id: str, token: str, purpose: str, *, lifetime_seconds: int
) -> AccountLinkRecord | None:
    """Find the link of a token, or None if it was used or replaced or has expired.

    ``lifetime_seconds`` is the current lifetime of links with the purpose.
    """
    parsed = parse_token(token)
    if parsed is None or (parsed.kind, parsed.organization_id) != (purpose, organization_id):
        return None
    row = db.session.scalar(
        select(AccountLink).where(
            AccountLink.organization_id == organization_id, AccountLink.digest == digest(token)
        )
    )
    if row is None or earliest_expiry(row.expires_at, row.created_at, lifetime_seconds) <= clock.now():
        return None
    return AccountLinkRecord(
        row.organization_id,
        row.user_id,
        row.purpose,
        row.is_mailed,
        row.digest,
        row.bound_digest,
        row.expires_at,
    )


@transaction
def consume_link(link: AccountLinkRecord) -> bool:
    """Delete the link, and return whether this caller was the one to use it, as the row count shows."""
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
    statement = delete(AccountLink).where(
        AccountLink.organization_id == organization_id, AccountLink.user_id == user_id
    )
    if purpose is not None:
        statement = statement.where(AccountLink.purpose == purpose)
    count_changed(statement)


def _replace(key: dict[str, object], values: dict[str, object]) -> bool:
    return bool(count_changed(update(AccountLink).filter_by(**key).values(**values)))


def _digest_of(value: str) -> bytes:
    return hashlib.sha256(value.encode()).digest()
