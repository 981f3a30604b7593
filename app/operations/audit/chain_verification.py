"""Verification of the audit log: it finds every change after the sealing of an event (AU-4, AU-5)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from msgspec import Struct, field
from sqlalchemy import select

from app.config import current
from app.extensions import db
from app.models.audit import AuditChain, AuditEvent, AuditLink
from app.models.organization import Organization
from app.operations.audit.audit_events import PREFIX
from app.operations.audit.chain import (
    MAX_COMMIT_DELAY,
    ChainHead,
    chain_key,
    find_chain,
    sealed_through,
    select_linked_events,
    select_unsealed,
    serialize_row,
)
from app.operations.store import clock
from app.operations.store.checkpoints import find_epoch, write_private_file
from app.operations.store.rows import count_rows, iterate_rows
from app.operations.store.transactions import read
from app.rules.actor import Actor
from app.rules.audit.events import GENESIS, PROBLEMS, head_mac, link_mac
from app.rules.identifiers import public_id
from app.rules.organizations.organizations import ROOT_SLUG

MAX_EVENTS_CHECKED = 5_000
MAX_PROBLEMS = 100
# Events are sealed almost in the order of their times. One that is further behind was inserted later.
_MAX_DISORDER = timedelta(minutes=10)


class ChainProblem(Struct, frozen=True):
    """One place where log and chain differ; ``kind`` is one of rules/audit/events.PROBLEMS."""

    kind: str
    position: int | None = None
    event_id: str | None = None

    @property
    def message(self) -> str:
        """Description of the problem."""
        return PROBLEMS[self.kind]


class ChainVerification(Struct):
    """The result of a verification. ``removed`` of ``length`` links were deleted by retention, ``pending`` are not
    sealed yet.

    ``head`` is the MAC of the last link in hexadecimal digits. ``next_position`` is where to continue, or None if the
    end of the chain was reached.
    """

    length: int = 0
    removed: int = 0
    head: str | None = None
    checked: int = 0
    pending: int = 0
    problems: list[ChainProblem] = field(default_factory=list)
    next_position: int | None = None

    @property
    def is_intact(self) -> bool:
        """Return whether no problem was found."""
        return not self.problems


class _SeenHead(Struct, frozen=True):
    """The head of a chain that this host has seen last, and when."""

    length: int
    mac: bytes
    epoch: str | None
    at: datetime


def remember_heads(heads: Collection[ChainHead]) -> None:
    """Write each head into a file of the instance folder, so that this host recognizes a chain that was put back."""
    epoch = _current_epoch() if heads else None
    at = clock.now().isoformat()
    for head in heads:
        document = {"epoch": epoch, "length": head.length, "mac": head.mac.hex(), "at": at}
        write_private_file(_head_file(head.organization_id), document, durable=False)


def _read_head(organization_id: str) -> _SeenHead | None:
    try:
        seen = json.loads(_head_file(organization_id).read_text())
        return _SeenHead(
            int(seen["length"]),
            bytes.fromhex(seen["mac"]),
            seen["epoch"],
            datetime.fromisoformat(seen["at"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _find_rollback(organization_id: str, chain: Any, seen: _SeenHead | None) -> list[ChainProblem]:
    """Return the problem that the chain does not contain the head that this host has seen last, if it does not.

    A head from before a restore of a backup is ignored: ``maintenance restore`` begins a new epoch. So is one from
    before the organization was purged and imported again.
    """
    if seen is None:
        return []
    current_epoch = _current_epoch()
    if current_epoch is not None and seen.epoch != current_epoch:
        return []
    if chain is None:
        is_expected = _is_purged(organization_id)
    else:
        is_expected = _contains(chain, seen) or _was_imported_since(chain, seen.at)
    return [] if is_expected else [ChainProblem("rolled_back", seen.length)]


def _contains(chain: Any, seen: _SeenHead) -> bool:
    return seen.length < chain.removed or (
        seen.length <= chain.length and _mac_at(chain, seen.length) == seen.mac
    )


@read
def _was_imported_since(chain: Any, at: datetime) -> bool:
    """Return whether the chain has an event of an import after this time, which only the service can have sealed."""
    imports = select_linked_events(chain.organization_id).where(
        AuditEvent.action == "organization.imported", AuditEvent.at > at, AuditLink.position <= chain.length
    )
    row = db.session.execute(imports.order_by(AuditLink.position.desc()).limit(1)).first()
    if row is None:
        return False
    key = chain_key(chain.organization_id)
    before = _mac_at(chain, row.position - 1)
    return bool(link_mac(key, before, row.position, serialize_row(row)) == row.mac)


def _head_file(organization_id: str) -> Path:
    return current().instance / "chains" / f"{organization_id}.json"


@read
def _current_epoch() -> str | None:
    root_id = db.session.scalar(select(Organization.id).where(Organization.slug == ROOT_SLUG))
    return None if root_id is None else find_epoch(root_id)


def verify_audit_log(actor: Actor, *, after: int = 0, limit: int = MAX_EVENTS_CHECKED) -> ChainVerification:
    """Verify up to ``limit`` events after the position against the chain, and report up to MAX_PROBLEMS problems.

    The end of the chain, and events outside of it, are checked when the end is reached.
    """
    actor.require("audit:read")
    here = actor.organization_id
    # The head before the chain: a worker of this host may append to the chain and remember its new head meanwhile.
    seen = _read_head(here)
    key, chain = chain_key(here), find_chain(here)
    found = ChainVerification()
    if chain is None:
        found.problems += _find_rollback(here, None, seen)
        _check_unsealed_events(here, found)
        if not found.pending and _should_have_chain(here):
            found.problems.insert(0, ChainProblem("chain_missing"))
        return found
    found.length, found.removed, found.head = chain.length, chain.removed, bytes(chain.head).hex()
    ends = {name: getattr(chain, name) for name in ("length", "head", "removed", "anchor")}
    if head_mac(key, **ends) != chain.mac:
        found.problems.append(ChainProblem("head_changed"))
    last, mac = _check_links(key, chain, found, max(after, chain.removed), limit)
    if found.next_position is not None:
        return found
    if last < chain.length or (last == chain.length and mac != chain.head):
        found.problems.append(ChainProblem("truncated", last))
    found.problems += _find_rollback(here, chain, seen)
    _check_unsealed_events(here, found)
    del found.problems[MAX_PROBLEMS:]
    return found


def matches_checkpoint(actor: Actor, position: int, mac: bytes) -> bool:
    """Return whether the chain matches a checkpoint. True where retention has deleted that position since."""
    actor.require("audit:read")
    chain = find_chain(actor.organization_id)
    if chain is None:
        return _is_purged(actor.organization_id)
    if position < chain.removed:
        return True
    return position <= chain.length and _mac_at(chain, position) == mac


def _check_links(
    key: bytes, chain: Any, found: ChainVerification, after: int, limit: int
) -> tuple[int, bytes | None]:
    """Check the links and return (position, mac) of the last one."""
    here = chain.organization_id
    mac: bytes | None = _mac_at(chain, after)
    newest: datetime | None = None
    for row in _links(here, after, chain.length):
        if len(found.problems) >= MAX_PROBLEMS:
            break
        if found.checked == limit:
            found.next_position = after
            break
        event_id = public_id(PREFIX, row.id)
        if row.position != after + 1:
            anchor = _anchor_before(here, row.position)
            if anchor is None:
                found.problems.append(ChainProblem("link_missing", after + 1))
            mac = anchor
        if row.at is None:
            found.problems.append(ChainProblem("missing", row.position, event_id))
        elif mac is not None and link_mac(key, mac, row.position, serialize_row(row)) != row.mac:
            found.problems.append(ChainProblem("changed", row.position, event_id))
        elif newest is not None and row.at < newest - _MAX_DISORDER:
            found.problems.append(ChainProblem("inserted", row.position, event_id))
        if row.at is not None:
            newest = row.at if newest is None else max(newest, row.at)
        # The next event is checked against the stored link, so that each change is reported once and where it is.
        after, mac = row.position, row.mac
        found.checked += 1
    return after, mac


def _links(organization_id: str, after: int, last: int) -> Iterator[Any]:
    """Yield the links after one position up to another, each with the columns of its event."""
    link = AuditLink.__table__.c
    return iterate_rows(
        select_linked_events(organization_id).where(link.position <= last), link.position, after=after
    )


@read
def _mac_at(chain: Any, position: int) -> bytes:
    if position == chain.removed:
        return bytes(chain.anchor)
    mac = db.session.scalar(
        select(AuditLink.mac).where(
            AuditLink.organization_id == chain.organization_id, AuditLink.position == position
        )
    )
    return GENESIS if mac is None else mac


def _check_unsealed_events(organization_id: str, found: ChainVerification) -> None:
    """Check events without a link: recent ones wait for the sealer, older ones were inserted later."""
    through = sealed_through()
    bound = None if through is None else through - MAX_COMMIT_DELAY
    old, found.pending = _find_unsealed_entries(organization_id, bound)
    found.problems += [ChainProblem("inserted", None, public_id(PREFIX, row_id)) for row_id in old]


@read
def _find_unsealed_entries(organization_id: str, bound: datetime | None) -> tuple[list[UUID], int]:
    """Return the ids of those before the bound, and the number of the others."""
    event = AuditEvent.__table__.c
    alone = select_unsealed(event.id).where(event.organization_id == organization_id)
    if bound is None:
        return [], count_rows(alone)
    old = db.session.scalars(alone.where(event.at < bound).order_by(event.id).limit(MAX_PROBLEMS)).all()
    return list(old), count_rows(alone.where(event.at >= bound))


@read
def _should_have_chain(organization_id: str) -> bool:
    through = sealed_through()
    made = db.session.scalar(select(Organization.created_at).where(Organization.id == organization_id))
    return through is not None and made is not None and made < through - MAX_COMMIT_DELAY


@read
def _is_purged(organization_id: str) -> bool:
    wrapped = db.session.execute(
        select(Organization.data_key).where(Organization.id == organization_id)
    ).first()
    return wrapped is not None and wrapped.data_key is None


@read
def _anchor_before(organization_id: str, position: int) -> bytes | None:
    """Return the anchor if retention has just removed everything before the position."""
    return db.session.scalar(
        select(AuditChain.anchor).where(
            AuditChain.organization_id == organization_id, AuditChain.removed == position - 1
        )
    )
