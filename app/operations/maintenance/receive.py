"""Receive an organization that another cell moves here: the other side of ``move``.

The organization is a tombstone without a key until the last command, so nothing of it is served or delivered here.
Commands that write hold a lease, so that only one receiver writes. What an interrupted move left is compared and used
by the next one.
"""

from __future__ import annotations

import inspect
import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import IO, Any

from msgspec import Struct, field
from sqlalchemy import Table, and_, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from app.config import current
from app.extensions import db
from app.models.audit import OutboxMessage
from app.models.base import Base
from app.models.organization import ACTIVE, DELETED, PURGED, SUSPENDED, Organization
from app.operations.audit.chain import seal_all_events
from app.operations.maintenance import transfer
from app.operations.maintenance.archive import record_to_row
from app.operations.maintenance.move import wait_until
from app.operations.maintenance.move_peer import OUTBOX, compared_tables, list_digests, require_intact_log
from app.operations.maintenance.received_rows import read_row, require_sound_chain
from app.operations.store import clock, leases
from app.operations.store.transactions import count_changed, read, transaction
from app.rules.actor import Actor
from app.rules.errors import Conflict, DomainError
from app.rules.identifiers import is_routing_key
from app.rules.organizations.organizations import slug_problem

_LEASE_SECONDS = 60


def receive_organization(actor: Actor, reader: IO[str], writer: IO[str]) -> None:
    """Carry out the commands of a moving cell until the stream ends, one JSON document a line.

    An error is answered and changes nothing. Raises Conflict if the stream is not UTF-8. Audit:
    ``organization.imported``.
    """
    actor.require("instance:write")
    receiver = _Receiver(actor)
    try:
        for line in reader:
            try:
                answer = {"result": _read_command(receiver, line)()}
            except DomainError as refusal:
                answer = {"error": refusal.description}
            writer.write(json.dumps(answer) + "\n")
            writer.flush()
    except UnicodeDecodeError:
        raise Conflict("Standard input is not UTF-8. `organizations move` starts this command.") from None
    finally:
        receiver.release()


def _read_command(receiver: _Receiver, line: str) -> Callable[[], Any]:
    """Return the command in a line with its arguments. Raises Conflict for a malformed or unknown one."""
    try:
        asked = json.loads(line)
        command = receiver.commands.get(asked.pop("command"))
    except (ValueError, RecursionError, AttributeError, KeyError, TypeError):
        raise Conflict(
            "This is not a command of `organizations move`, which starts this one: a JSON object a line."
        ) from None
    if command is None:
        raise Conflict("This release does not know the command.")
    try:
        arguments = inspect.signature(command).bind(**asked)
    except TypeError:
        raise Conflict("This release knows the command with other arguments.") from None
    return partial(command, *arguments.args, **arguments.kwargs)


class _Receiver(Struct):
    """The receiver of one organization; the methods are the commands."""

    actor: Actor
    holder: str = field(default_factory=lambda: secrets.token_hex(8))
    organization_id: str = ""
    is_writing: bool = False
    renewed_at: float = 0.0

    @property
    def commands(self) -> Mapping[str, Callable[..., Any]]:
        """The commands by name."""
        return {
            "clock": lambda: clock.now().isoformat(),
            "begin": self.begin,
            "digests": self.digests,
            "delete": self.delete,
            "put": self.put,
            "prepare": self.prepare,
            "activate": self.activate,
            "withdraw": self.withdraw,
            "abandon": self.abandon,
        }

    def begin(
        self,
        organization: dict[str, Any],
        tables: Mapping[str, list[str]],
        base_url: str,
        decided: str | None,
        is_returning: bool,
    ) -> str:
        """Check that both cells fit, and create the tombstone. Return the organization's status here.

        ``decided`` names a move that was decided. It has prepared its tombstone before: none is created or opened again
        then, and one that was withdrawn is accepted only if the organization returns.
        """
        if base_url != current().base_url:
            raise Conflict(
                f"The base URL here is {current().base_url}, not {base_url}. All cells have the same."
            )
        if tables != {table.name: sorted(table.columns.keys()) for table in compared_tables()}:
            raise Conflict("The schemas differ. Run the same release in both cells.")
        if not is_routing_key(organization["id"]) or slug_problem(organization["slug"]) is not None:
            raise Conflict("The ID of the organization is not valid.")
        self.organization_id = organization["id"]
        found = _find_status(self.organization_id)
        if decided is not None and found in {ACTIVE, SUSPENDED}:
            return found
        if not leases.acquire(self._job, self.holder, _LEASE_SECONDS):
            raise Conflict("Another move or import of this organization is running. Try again in a minute.")
        self.is_writing = True
        if decided is not None:
            _require_tombstone(
                self.organization_id, datetime.fromisoformat(decided), is_returning=is_returning
            )
            return PURGED
        _reopen_tombstone(organization["id"], organization["slug"])
        created_at = datetime.fromisoformat(organization["created_at"])
        transfer.create_tombstone({**organization, "created_at": created_at})
        return PURGED

    def digests(self, table: str) -> dict[str, str]:
        """Return the digests of the rows here."""
        # A move compares all tables several times, and what writes renews the lease anyway.
        if self.is_writing and time.monotonic() - self.renewed_at > _LEASE_SECONDS / 4:
            self._renew()
        return list_digests(self.organization_id, _table(table))

    def delete(self, table: str, keys: list[str]) -> None:
        """Delete the rows with these primary keys."""
        self._renew()
        _delete(_table(table), self.organization_id, [json.loads(key) for key in keys])

    def put(self, table: str, records: list[list[Any]]) -> None:
        """Store the rows. One that conflicts with another is left out: the next comparison brings it again."""
        self._renew()
        found = _table(table)
        names = found.columns.keys()
        rows = [read_row(record, names, found, self.organization_id) for record in records]
        # Most are new. One that exists fails the insertion of its batch.
        for store in (_insert, _put):
            try:
                store(found, rows)
            except IntegrityError:
                continue
            return
        for row in rows:
            with suppress(IntegrityError):
                _put(found, [row])

    def prepare(self, organization: dict[str, Any], move: str) -> None:
        """Check everything that could keep the organization from being activated. From now on only this move can."""
        self._renew()
        transfer.read_organization({"organization": organization})
        require_sound_chain(self.organization_id)
        _change_tombstone(self.organization_id, moving_until=datetime.fromisoformat(move))

    def activate(
        self, organization: dict[str, Any], move: str, messages: list[list[Any]], after: str
    ) -> None:
        """Serve the organization from now on. Its messages are due here at once."""
        self._renew()
        # Times of this database must not be before those that the source has stored.
        wait_until(datetime.fromisoformat(after))
        brought = transfer.read_organization({"organization": organization})
        if brought["id"] != self.organization_id:
            raise Conflict("This is another organization.")
        names = OUTBOX.columns.keys()
        rows = [read_row(record, names, OUTBOX, self.organization_id) for record in messages]
        _take_over(self.actor, brought, datetime.fromisoformat(move), rows)
        seal_all_events(self.actor, self.organization_id)
        require_intact_log(self.actor, self.organization_id)

    def withdraw(self) -> None:
        """Never serve the organization by this move: it returns to where it came from."""
        self._renew()
        _change_tombstone(self.organization_id, deleted_at=clock.now())

    def abandon(self) -> None:
        """Delete what was received."""
        self._renew()
        _change_tombstone(self.organization_id, moving_until=None)
        transfer.delete_leftovers(self.organization_id, self._renew_lease)

    def release(self) -> None:
        """Let another move or import begin."""
        if self.is_writing:
            leases.release(self._job, self.holder)

    @property
    def _job(self) -> str:
        # The one of an import, so that neither disturbs the other.
        return f"{self.organization_id} import"

    def _renew_lease(self) -> None:
        if not self.is_writing or not leases.renew(self._job, self.holder, _LEASE_SECONDS):
            raise Conflict("Another move or import of this organization has taken over.")

    def _renew(self) -> None:
        self._renew_lease()
        if _find_status(self.organization_id) != PURGED:
            raise Conflict("This cell already serves the organization.")
        self.renewed_at = time.monotonic()


def _table(name: str) -> Table:
    if name not in {table.name for table in compared_tables()}:
        raise Conflict("The table is unknown here.")
    return Base.metadata.tables[name]


@read
def _find_status(organization_id: str) -> str | None:
    return db.session.scalar(select(Organization.status).where(Organization.id == organization_id))


@read
def _require_tombstone(organization_id: str, move: datetime, *, is_returning: bool) -> None:
    """Raise Conflict unless the organization is the tombstone that the move was prepared in."""
    row = db.session.execute(
        select(
            Organization.status, Organization.moved_to, Organization.moving_until, Organization.deleted_at
        ).where(Organization.id == organization_id)
    ).first()
    if row is not None and row.status == PURGED and row.moving_until == move:
        if row.deleted_at is not None and not is_returning:
            raise Conflict("The move was withdrawn. Run the command again with --return.")
        return
    if row is not None and row.moved_to is not None:
        raise Conflict(f"The organization has moved on to {row.moved_to} from here.")
    if row is not None and row.status != PURGED:
        raise Conflict(f"The organization is {row.status} here.")
    raise Conflict("The organization was not moved here, so this is not the target. Check --to and --via.")


@transaction
def _reopen_tombstone(organization_id: str, slug: str) -> None:
    """Make an organization that had moved away from here a tombstone again, so that it can come back.

    No earlier move can use the tombstone any more.
    """
    had_moved = Organization.moved_to.is_not(None) & (Organization.status == DELETED)
    count_changed(
        update(Organization)
        .where(
            Organization.id == organization_id,
            Organization.slug == slug,
            had_moved | (Organization.status == PURGED),
        )
        .values(status=PURGED, data_key=None, purge_at=None, deleted_at=None, moving_until=None)
    )


@transaction
def _change_tombstone(organization_id: str, **values: Any) -> None:
    changed = count_changed(
        update(Organization)
        .where(Organization.id == organization_id, Organization.status == PURGED)
        .values(**values)
    )
    if changed != 1:
        raise Conflict("This cell already serves the organization.")


@transaction
def _delete(table: Table, organization_id: str, keys: Sequence[Sequence[Any]]) -> None:
    columns = list(table.primary_key.columns)
    names = [column.name for column in columns]
    for key in keys:
        values = record_to_row(key, names, table)
        those = [column == values[column.name] for column in columns]
        db.session.execute(
            delete(table).where(table.c.organization_id == organization_id, *those),
            execution_options={"synchronize_session": False},
        )


@transaction
def _insert(table: Table, rows: Sequence[dict[str, Any]]) -> None:
    db.session.execute(insert(table), rows)


@transaction
def _put(table: Table, rows: Sequence[dict[str, Any]]) -> None:
    keys = list(table.primary_key.columns)
    new = []
    for row in rows:
        those = and_(*(column == row[column.name] for column in keys))
        exists = db.session.execute(select(*keys).where(those)).first() is not None
        if exists:
            db.session.execute(
                update(table).where(those).values(row), execution_options={"synchronize_session": False}
            )
        else:
            new.append(row)
    if new:
        db.session.execute(insert(table), new)


@transaction
def _take_over(
    actor: Actor, organization: Mapping[str, Any], move: datetime, messages: Sequence[dict[str, Any]]
) -> None:
    now = clock.now()
    of_organization = OutboxMessage.organization_id == organization["id"]
    # What is left of an earlier stay here was delivered elsewhere.
    db.session.execute(
        delete(OutboxMessage).where(of_organization), execution_options={"synchronize_session": False}
    )
    if messages:
        db.session.execute(insert(OutboxMessage), [{**row, "available_at": now} for row in messages])
    transfer.activate(actor, organization, move)
