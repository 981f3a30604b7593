"""Emails of deleted users in the rows that they created or decided about, which their id replaces.

Such rows, of clients, secrets, groups and others, say by email who it was and may be kept for years. The audit log, the
rows of other organizations, and those of finished imports keep the email until their retention ends.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from sqlalchemy import Column, ColumnElement, Table, and_, bindparam, or_, select, true, update

from app.extensions import db
from app.fast_path import cache_invalidation
from app.models.audit import AuditEvent
from app.models.base import Base
from app.models.organization import Organization
from app.operations.directory.lookups import get_user_roles
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.directory.users import UserSnapshot, find_user_by_email
from app.operations.mail import emails
from app.operations.store import outbox
from app.operations.store.outbox import DeliveryUnfinished, Message
from app.operations.store.rows import has_rows
from app.operations.store.transactions import read, transaction
from app.rules.audit.events import ACCOUNT_EVENTS
from app.rules.directory.permissions import MEMBER

KIND = "erased_labels"
BATCH = 250
# Rows that one statement reads: there is no index, and a statement has seconds only.
SCANNED = 20_000
_BATCHES_PER_DELIVERY = 40
_COLUMNS = frozenset({"created_by", "decided_by", "revoked_by", "settings_updated_by", "updated_by"})
_EMAIL_CHANGES = ("user.email_changed", "user.updated")
# Events of members without a role, who create no such rows. An event that is missing here only costs a search.
_MEMBER_ACTIONS = frozenset(ACCOUNT_EVENTS) | {
    "client_request.created",
    "code.replayed",
    "device_code.allowed",
    "device_code.denied",
    "grant.created",
    "grant.revoked",
    "invitation.accepted",
    "refresh_token.reused",
    "sign_in.first_proof_given",
    "token.revoked",
    "user.deleted",
    "user.email_proof_requested",
}


def erase_labels(user: UserSnapshot) -> None:
    """Queue the erasure in the transaction that deletes the user, before it deletes their roles."""
    if _has_acted_for_others(user):
        values = {"user": user.public_id, "email": user.email}
        emails.enqueue_sealed(user.organization_id, KIND, values, receiver=user.public_id)


def register() -> None:
    """Register the erasure with the outbox."""
    outbox.register_delivery(KIND, deliver, receiver_type="user")


def deliver(message: Message) -> None:
    """Replace the user's emails by their id, also in a deleted organization, which may be restored.

    Raises DeliveryUnfinished if another attempt has to go on.
    """
    organization = emails.get_organization_of_message(message, or_deleted=True)
    values = emails.open_payload(organization.id, KIND, message.payload)
    labels = _find_labels(organization.id, values["user"], values["email"])
    left = _BATCHES_PER_DELIVERY
    for table, column, own in _columns(organization):
        for part in _parts(table, own):
            while keys := _find_keys(table, column, part, labels):
                if left == 0:
                    raise DeliveryUnfinished
                _replace(table, column, keys, organization.id, values["user"])
                left -= 1


def _has_acted_for_others(user: UserSnapshot) -> bool:
    roles = get_user_roles(user.organization_id, user.organization_id, user.id)
    if set(roles) - {MEMBER}:
        return True
    acted = select(AuditEvent.id).where(
        AuditEvent.organization_id == user.organization_id,
        AuditEvent.actor_id == user.public_id,
        AuditEvent.action.not_in(_MEMBER_ACTIONS),
    )
    # Of a user who is older than the audit log it does not tell everything.
    earlier = select(AuditEvent.id).where(
        AuditEvent.organization_id == user.organization_id, AuditEvent.id <= user.id
    )
    return not has_rows(earlier) or has_rows(acted)


@read
def _find_labels(organization_id: str, user_id: str, email: str) -> set[str]:
    """Return the emails that the user had, without those that other users have now."""
    changes = select(AuditEvent.before).where(
        AuditEvent.organization_id == organization_id,
        AuditEvent.target_id == user_id,
        AuditEvent.action.in_(_EMAIL_CHANGES),
    )
    earlier = {str(before["email"]) for before in db.session.scalars(changes) if before and "email" in before}
    return {each[:200] for each in earlier | {email} if find_user_by_email(organization_id, each) is None}


def _columns(organization: OrganizationSnapshot) -> Iterator[tuple[Table, str, ColumnElement[bool]]]:
    """Yield the columns that name users, with their table and the condition of the rows that are meant.

    Users of root also create organizations and set the instance limits.
    """
    for table in Base.metadata.sorted_tables:
        for name in sorted(_COLUMNS & set(table.c.keys())):
            if "organization_id" in table.c:
                yield table, name, table.c.organization_id == organization.id
            elif table.name == Organization.__tablename__ and name == "settings_updated_by":
                yield table, name, table.c.id == organization.id
            elif organization.is_root:
                yield table, name, true()


def _parts(table: Table, own: ColumnElement[bool]) -> Iterator[ColumnElement[bool]]:
    """Yield conditions that divide the rows into parts of at most SCANNED, in the order of their keys."""
    rest, key = own, _find_last_key(table, own)
    while key is not None:
        yield rest & (_is_beside(table, key, operator.lt) | _is_beside(table, key, operator.eq))
        rest = own & _is_beside(table, key, operator.gt)
        key = _find_last_key(table, rest)
    yield rest


@read
def _find_last_key(table: Table, rest: ColumnElement[bool]) -> Sequence[Any] | None:
    """Return the key of the last row of a part, or None if it is the last part."""
    columns = _columns_of_order(table)
    found = select(*columns).where(rest).order_by(*columns).offset(SCANNED - 1).limit(1)
    # By another index, MariaDB would sort all that is left.
    return db.session.execute(found.with_hint(table, "FORCE INDEX (PRIMARY)", "mysql")).first()


def _columns_of_order(table: Table) -> list[Column[Any]]:
    # Ordered also by the organization, which all rows have in common, MariaDB sorts them instead of reading the index.
    return [each for each in table.primary_key if each.name != "organization_id"]


def _is_beside(table: Table, key: Sequence[Any], compare: Callable[[Any, Any], Any]) -> ColumnElement[bool]:
    """Return the condition that a row's key compares so with this one, column by column, as indexes can use it."""
    columns = list(zip(_columns_of_order(table), key, strict=True))
    if compare is operator.eq:
        return and_(*(column == value for column, value in columns))
    return or_(
        *(
            and_(*(same == value for same, value in columns[:place]), compare(*columns[place]))
            for place in range(len(columns))
        )
    )


@read
def _find_keys(
    table: Table, column: str, part: ColumnElement[bool], labels: Collection[str]
) -> Sequence[Sequence[Any]]:
    """Return the first keys of rows with one of the labels."""
    keys = list(table.primary_key)
    found = (
        select(*keys)
        .where(part, table.c[column].in_(labels))
        .order_by(*_columns_of_order(table))
        .limit(BATCH)
    )
    return db.session.execute(found).all()


@transaction
def _replace(
    table: Table, column: str, keys: Sequence[Sequence[Any]], organization_id: str, user_id: str
) -> None:
    names = [f"of_{each.name}" for each in table.primary_key]
    is_row = (each == bindparam(name) for each, name in zip(table.primary_key, names, strict=True))
    db.session.execute(
        update(table).where(*is_row).values({column: user_id}),
        [dict(zip(names, key, strict=True)) for key in keys],
    )
    # Snapshots of clients say who registered them.
    cache_invalidation.invalidate(organization_id)
