"""Cache invalidation: how every process learns that what it cached about an organization is out of date.

Clients and settings are needed by each request and change seldom, so processes cache them. A change does two things:

- Its transaction inserts a row into ``view_changes``. One process of each machine reads the whole table every 0.4
  seconds; an id that was not there the time before is a change that was committed since. Because rows are only added,
  nothing depends on the order of ids or on a clock: a transaction may take as long as it likes between INSERT and
  COMMIT, and one that is rolled back leaves nothing. Rows are deleted only together with the insertion of one that
  concerns every organization (``prune``).
- After its COMMIT and before its response it renews the organization's stamp in a small file that all processes of this
  machine map into their memory, so that they read again at once. If the file cannot be written, they learn of it like
  other machines.

The process that reads the table, the lead of its machine, renews the stamps of what it found, and then writes into the
same file when it had sent the query: what it has seen, all have seen. Who leads decides nothing but how many queries
are sent: each process compares what it reads with what it read itself before, and one that begins renews all stamps, so
any number of them may read, at any time. Another process takes over as soon as the lead has ended, and from one that is
stopped or cannot reach the database after two seconds. A process without the file reads the table itself.

A cached value is trusted for a second after its own query was sent, and while the last query of the table was sent less
than a second ago, unless one of the two has shown a change. The seconds are those of ``uptime``, which goes on while a
process is stopped and which nobody sets. While nobody can read the table, every value is read from the database. So a
committed change takes effect on this machine at once and on every machine within a second. When no process has used a
cached value for half a minute, none reads the table until one is used again, and none is trusted meanwhile.

A database that was failed over or restored may lack changes whose effect has been cached. When the connection or the
server is another one, or an id has disappeared, nothing that was read before is trusted on this machine.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import logging
import mmap
import os
import struct
import threading
import zlib
from pathlib import Path
from typing import Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import String, delete, func, insert, select, true
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from app.config import current, fault_of
from app.database import ACROSS
from app.extensions import db, on_commit
from app.fast_path.compiled_query import CompiledQuery, connection_number
from app.models.audit import CacheInvalidation
from app.rules.identifiers import new_id
from app.uptime import uptime

TRUSTED_SECONDS = 1.0
# An upper limit on the age of a cached value, for manual changes in the database.
MAX_AGE_SECONDS = 600.0
POLL_SECONDS = 0.4
# How long the table is read after a cached value was last used.
IDLE_SECONDS = 30.0
_IDLE_TURNS = 3
# Every process reads all rows at each poll. Pruning makes every process read its cached values again.
MAX_ROWS = 200
_SLOTS, _WIDTH = 4096, 8
# Behind the stamps are records: key, three numbers and a checksum.
_RECORD, _RECORD_BYTES = struct.Struct("<8sdddI"), 64
_LEAD, _USE, CLOCK = range(3)
"""The records: who leads the machine, when a cached value was last used, and what the database's clock showed."""
_LENGTH = _SLOTS * _WIDTH + 4096
# A lead that has ended is noticed at once; one that is only slow should not be replaced, because its successor makes
# the whole machine read again what it has cached.
LEAD_SECONDS = 2.0
# How long a process does without the file before it tries to map it again.
_RETRY_SECONDS = 30.0
_WITHOUT_FILE = (
    "Meanwhile this machine's processes learn of each other's changes within a second instead of at once."
)
_log = logging.getLogger("gatehouse.changes")


class _ServerIdentity(FunctionElement[str]):
    """Text that differs between the servers of a cluster, for proxies that change the server behind a connection."""

    type = String()
    inherit_cache = True


@compiles(_ServerIdentity)
def _mysql_server_identity(_element: _ServerIdentity, _compiler: Any, **_options: Any) -> str:
    return "CONCAT_WS(':', @@hostname, @@port, @@server_id)"


@compiles(_ServerIdentity, "sqlite")
def _sqlite_server_identity(_element: _ServerIdentity, _compiler: Any, **_options: Any) -> str:
    return "'sqlite'"


_SERVER = select(_ServerIdentity().label("identity")).subquery("server")
# One statement, so that all of it comes from one server and one moment; one row also when there are no changes.
_CHANGES = CompiledQuery(
    select(
        _SERVER.c.identity,
        CacheInvalidation.organization_id,
        CacheInvalidation.id,
        CacheInvalidation.is_for_all,
    ).select_from(_SERVER.outerjoin(CacheInvalidation, true())),
    across_organizations=True,
)


class Follower:
    """The changes in one database that this process has seen.

    ``sent_at`` is when it or the lead sent the query whose changes were applied last, ``used_at`` when a cached value
    was last used, both in seconds of ``uptime``.
    """

    __slots__ = ("_ids", "_source", "sent_at", "stamps", "used_at")

    def __init__(self) -> None:
        self.sent_at = self.used_at = float("-inf")
        # One object for each slot of organizations; another object means that something has changed.
        self.stamps = [object()] * _SLOTS
        self._ids: frozenset[UUID] = frozenset()
        self._source: tuple[object, ...] | None = None

    def forget(self) -> None:
        """Trust nothing that was read before."""
        self.stamps = [object()] * _SLOTS

    def poll(self) -> None:
        """Apply what has been committed since the last poll. Raises Unavailable or the database's error."""
        sent_at = uptime()
        rows = _CHANGES.rows()
        source = (rows[0].identity, connection_number())
        changes = [row for row in rows if row.id is not None]
        new = [row for row in changes if row.id not in self._ids]
        ids = frozenset(row.id for row in changes)
        if source != self._source or not ids >= self._ids or any(row.is_for_all for row in new):
            self.forget()
            all_told = _renew_all()
        else:
            all_told = all(_renew(row.organization_id) for row in new)
        for row in new:
            self.stamps[_slot_of(row.organization_id)] = object()
        self._ids, self._source = ids, source
        # Written last, so that a process that reads it sees the stamps of this poll too.
        self.sent_at = sent_at
        if all_told:
            _machine().put(_LEAD, os.getpid(), uptime(), sent_at)

    def has_polled_since(self, moment: float) -> bool:
        """Return whether this process or the lead of the machine has polled since; for stamps read afterwards."""
        if self.sent_at <= moment:
            lead = _machine().find(_LEAD)
            if lead is not None and lead[2] <= uptime():
                self.sent_at = max(self.sent_at, lead[2])
        return self.sent_at > moment


class CacheStamp:
    """The state of an organization before a value was read, to find out whether it has changed since."""

    __slots__ = ("_follower", "_from_poll", "_on_machine", "_read_at", "_slot", "_stamps")

    def __init__(self, organization_id: str) -> None:
        config = current()
        self._slot = _slot_of(organization_id)
        self._follower = _follower_of(config.database_url)
        # Before the machine's stamps, which may be mapped again at this moment.
        self._from_poll = self._follower.stamps[self._slot]
        self._stamps = _stamps_of(config.instance).memory
        self._on_machine = self._stamps[self._slot * _WIDTH : (self._slot + 1) * _WIDTH]
        self._read_at = uptime()

    @property
    def is_current(self) -> bool:
        """Return whether a value read under this stamp reflects every change that was committed a second ago."""
        tick, follower, slot = uptime(), self._follower, self._slot
        follower.used_at = tick
        oldest = tick - TRUSTED_SECONDS
        # Before the stamps are compared, which a poll may change in this moment.
        if self._read_at <= oldest and follower.sent_at <= oldest and not follower.has_polled_since(oldest):
            return False
        return (
            follower.stamps[slot] is self._from_poll
            and self._stamps[slot * _WIDTH : (slot + 1) * _WIDTH] == self._on_machine
            and tick - self._read_at < MAX_AGE_SECONDS
        )


class _MachineStamps(Struct, frozen=True):
    """The stamps that all processes of this machine share, and the file that they are in.

    Without a file the memory belongs to this process alone. ``mapped_at`` is in seconds of ``uptime``.
    """

    memory: mmap.mmap
    descriptor: int | None
    mapped_at: float

    @property
    def is_due(self) -> bool:
        """Return whether to try again to map the file."""
        return self.descriptor is None and uptime() - self.mapped_at > _RETRY_SECONDS

    def write(self, offset: int, stamps: bytes) -> None:
        """Replace stamps from the offset on, in bytes. Raises OSError when the disk is full.

        A write to the memory would then end the process with SIGBUS, where the file system allocates each page anew.
        """
        if self.descriptor is None:
            self.memory[offset : offset + len(stamps)] = stamps
        elif os.pwrite(self.descriptor, stamps, offset) < len(stamps):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def put(self, record: int, *numbers: float) -> None:
        """Replace a record. On a full disk nothing happens, and the record becomes outdated."""
        packed = _RECORD.pack(_machine_key(current().database_url), *numbers, 0)[:-4]
        with contextlib.suppress(OSError):
            self.write(_record_offset(record), packed + zlib.crc32(packed).to_bytes(4, "little"))

    def find(self, record: int) -> tuple[float, float, float] | None:
        """Return a record's numbers, or None if it is not of this machine and database or is just being written."""
        place = _record_offset(record)
        packed = self.memory[place : place + _RECORD.size]
        key, first, second, third, checksum = _RECORD.unpack(packed)
        if checksum != zlib.crc32(packed[:-4]) or key != _machine_key(current().database_url):
            return None
        return first, second, third


_mapped: dict[Path, _MachineStamps] = {}
_mapping = threading.Lock()
_followers: dict[str, Follower] = {}


def invalidate(organization_id: str) -> None:
    """Make what is cached about the organization stale once the open transaction has committed."""
    _insert(organization_id, is_for_all=False)

    def renew() -> None:
        _renew(organization_id)

    on_commit(renew)


def invalidate_all(organization_id: str) -> None:
    """Make what is cached about every organization stale once the open transaction has committed.

    The row is stored under the key of the given one.
    """
    _insert(organization_id, is_for_all=True)

    def renew() -> None:
        _renew_all()

    on_commit(renew)


def prune() -> int:
    """Delete the rows once there are many, in the open transaction. Return how many were deleted.

    Processes that have not read the deleted rows yet learn of them by a row that concerns every organization.
    """
    rows = db.session.execute(
        select(CacheInvalidation.organization_id, CacheInvalidation.id).execution_options(**ACROSS)
    ).all()
    if len(rows) <= MAX_ROWS:
        return 0
    by_organization: dict[str, list[UUID]] = {}
    for organization_id, change_id in rows:
        by_organization.setdefault(organization_id, []).append(change_id)
    # Exactly what was read: a change that is committed in the meantime stays.
    for organization_id, ids in sorted(by_organization.items()):
        db.session.execute(
            delete(CacheInvalidation)
            .where(CacheInvalidation.organization_id == organization_id, CacheInvalidation.id.in_(ids))
            .execution_options(synchronize_session=False)
        )
    invalidate_all(rows[0].organization_id)
    return len(rows)


def follow() -> None:
    """Take part in following the changes: a serving process calls this every ``POLL_SECONDS``.

    Raises Unavailable or the database's error; then another process takes over.
    """
    machine, follower = _machine(), _follower_of(current().database_url)
    used_at = uptime() - IDLE_SECONDS
    if follower.used_at > used_at:
        machine.put(_USE, follower.used_at, 0, 0)
    if not is_lead():
        return
    if is_in_use():
        follower.poll()
    else:
        machine.put(_LEAD, os.getpid(), uptime(), follower.sent_at)


def is_lead() -> bool:
    """Return whether this process does the work of its machine: it is the leader, or there is none.

    For a moment two processes may do so.
    """
    lead = _machine().find(_LEAD)
    if lead is None:
        return True
    holder, alive_at, _ = lead
    return holder == os.getpid() or not 0 <= uptime() - alive_at < LEAD_SECONDS or _has_ended(int(holder))


def is_in_use() -> bool:
    """Return whether a cached value was used recently on this machine, so that the changes must be followed."""
    used_at = _follower_of(current().database_url).used_at
    if (elsewhere := _machine().find(_USE)) is not None and elsewhere[0] <= uptime():
        used_at = max(used_at, elsewhere[0])
    return uptime() - used_at < IDLE_SECONDS


def has_turn(number: int) -> bool:
    """Return whether this process does its next turn of what one of its machine is enough for.

    Of a machine without requests only every third turn takes place.
    """
    return is_lead() and (number % _IDLE_TURNS == 0 or is_in_use())


def age() -> float:
    """Return the seconds since the changes were read, or 0 where no cached value is in use."""
    return max(0.0, uptime() - _follower_of(current().database_url).sent_at) if is_in_use() else 0.0


def poll() -> None:
    """Apply the changes that were committed since the last poll. Raises Unavailable or the database's error."""
    _follower_of(current().database_url).poll()


def write_machine_record(record: int, *numbers: float) -> None:
    """Share three numbers with all processes of this machine that use this database, such as those of ``CLOCK``."""
    _machine().put(record, *numbers)


def read_machine_record(record: int) -> tuple[float, float, float] | None:
    """Return the numbers that a process of this machine wrote last, or None."""
    return _machine().find(record)


def _insert(organization_id: str, *, is_for_all: bool) -> None:
    # The time is for people, and for workers of release 0.1.0, which follow by it.
    db.session.execute(
        insert(CacheInvalidation).values(
            organization_id=organization_id, id=new_id(), at=func.current_timestamp(), is_for_all=is_for_all
        )
    )


def _renew(organization_id: str) -> bool:
    # The stamp is random, so that two processes that renew it at once cannot bring back an earlier one.
    return _write(_slot_of(organization_id) * _WIDTH, os.urandom(_WIDTH))


def _renew_all() -> bool:
    return _write(0, os.urandom(_SLOTS * _WIDTH))


def _write(offset: int, stamps: bytes) -> bool:
    """Replace stamps of the machine; return whether they could be written."""
    config = current()
    try:
        _stamps_of(config.instance).write(offset, stamps)
    except OSError as error:
        # The change is committed, and this process knows of it. The others learn of it by the next poll.
        _follower_of(config.database_url).forget()
        _log.warning("%s %s", fault_of(config.instance, error), _WITHOUT_FILE)
        return False
    return True


def _machine() -> _MachineStamps:
    return _stamps_of(current().instance)


@functools.cache
def _machine_key(database_url: str) -> bytes:
    """Return what differs when a record is of another database, another start of the machine, or another clock.

    Machines may share an instance folder over a network, and containers may have a clock of their own.
    """
    marks = [database_url]
    for mark in ("/etc/machine-id", "/proc/sys/kernel/random/boot_id"):
        with contextlib.suppress(OSError):
            marks.append(Path(mark).read_text())
    with contextlib.suppress(OSError):
        marks.append(os.readlink("/proc/self/ns/time"))
    return hashlib.blake2b("\n".join(marks).encode(), digest_size=8).digest()


def _has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        # It belongs to another user.
        return False
    return False


def _record_offset(record: int) -> int:
    return _SLOTS * _WIDTH + record * _RECORD_BYTES


def _slot_of(organization_id: str) -> int:
    return zlib.crc32(organization_id.encode()) % _SLOTS


def _follower_of(database_url: str) -> Follower:
    return _followers.get(database_url) or _followers.setdefault(database_url, Follower())


def _stamps_of(folder: Path) -> _MachineStamps:
    stamps = _mapped.get(folder)
    if stamps is None or stamps.is_due:
        with _mapping:
            stamps = _mapped.get(folder)
            if stamps is None or stamps.is_due:
                stamps = _mapped[folder] = _map(folder)
                # What was cached before is compared with memory that is no longer written.
                for follower in _followers.copy().values():
                    follower.forget()
    return stamps


def _map(folder: Path) -> _MachineStamps:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(folder / "changes", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # Also the holes of a file that exists: without space for one, touching it would end the process by SIGBUS.
            os.posix_fallocate(descriptor, 0, _LENGTH)
            return _MachineStamps(mmap.mmap(descriptor, _LENGTH), descriptor, uptime())
        except OSError:
            os.close(descriptor)
            raise
    except OSError as error:
        _log.warning("%s %s", fault_of(folder, error), _WITHOUT_FILE)
        return _MachineStamps(mmap.mmap(-1, _LENGTH), None, uptime())
