"""Account links: one for each purpose and user, of use once, as long as what it is bound to stands."""

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
from app.rules.organizations.settings_effects import end_of_life
from app.rules.token_values import digest, new_token, parse_token


@dataclass(frozen=True, slots=True)
class AccountLinkRecord:
    """A link that has not ended by age, without its token."""

    organization_id: str
    user_id: UUID
    purpose: str
    is_mailed: bool
    digest: bytes
    bound_digest: bytes
    expires_at: datetime

    def is_bound_to(self, value: str) -> bool:
        """Whether the value is what stood when the link was made."""
        return self.bound_digest == _digest_of(value)


@transaction
def create_link(
    organization_id: str,
    user_id: UUID,
    purpose: str,
    *,
    bound_to: str,
    life: timedelta,
    is_mailed: bool,
    address: str | None = None,
) -> tuple[str, datetime]:
    """(the token, when it ends) of the user's only link of the purpose: one made before is dead (RP-1).

    ``purpose`` is the kind of its token; ``bound_to`` is what must not change until it is used;
    ``address`` is the one that it proves, if any. Part of the unit that audits it.
    """
    token: str = current_unit_of_work().stable_value(
        f"link {purpose} {user_id}", lambda: new_token(purpose, organization_id)
    )
    now = clock.now()
    whose = {"organization_id": organization_id, "user_id": user_id, "purpose": purpose}
    values = {
        "digest": digest(token),
        "bound_digest": _digest_of(bound_to),
        "is_mailed": is_mailed,
        "address": address,
        "created_at": now,
        "expires_at": now + life,
    }
    if not _replace(whose, values):
        try:
            with db.session.begin_nested():
                db.session.execute(insert(AccountLink).values(**whose, **values))
        except IntegrityError:
            # Another request made the first one in the meantime: the later of the two counts.
            _replace(whose, values)
    return token, now + life


@read
def find_link(
    organization_id: str, token: str, purpose: str, *, life_seconds: int
) -> AccountLinkRecord | None:
    """The link that the token of this organization belongs to, or None when it was used, replaced or has expired.

    ``life_seconds`` is how long links of the purpose live now.
    """
    parsed = parse_token(token)
    if parsed is None or (parsed.kind, parsed.organization_id) != (purpose, organization_id):
        return None
    row = db.session.scalar(
        select(AccountLink).where(
            AccountLink.organization_id == organization_id, AccountLink.digest == digest(token)
        )
    )
    if row is None or end_of_life(row.expires_at, row.created_at, life_seconds) <= clock.now():
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
    """Whether it is used now, by this caller alone: the row count decides between two who come at once."""
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
    """The user's links, those of the purpose when one is given, are of use no more."""
    statement = delete(AccountLink).where(
        AccountLink.organization_id == organization_id, AccountLink.user_id == user_id
    )
    if purpose is not None:
        statement = statement.where(AccountLink.purpose == purpose)
    count_changed(statement)


def _replace(whose: dict[str, object], values: dict[str, object]) -> bool:
    return bool(count_changed(update(AccountLink).filter_by(**whose).values(**values)))


def _digest_of(value: str) -> bytes:
    return hashlib.sha256(value.encode()).digest()
