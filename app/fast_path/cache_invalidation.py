"""Cache invalidation: how every process learns that what it cached about an organization is out of date.

Clients and settings are needed by each request and change seldom, so processes cache them. A cached value is valid
while the stamp of its organization is the one it was read under. The stamps are in a small file that all processes of
this machine map into their memory: a change renews the stamp after its COMMIT and before its response, and from then
on every process of this machine reads again. Other machines learn of it from the table ``view_changes``, written in
the same transaction, which each process polls. A process that has not polled for a second trusts no value older than
that. So a revocation takes effect here at once and on every machine within a second.
"""

from __future__ import annotations

import logging
import mmap
import os
import threading
import time
import zlib
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import insert, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from app.config import current
from app.database import on_commit
from app.extensions import db
from app.fast_path.compiled_query import CompiledQuery
from app.models.audit import CacheInvalidation
from app.models.base import UtcDateTime
from app.rules.identifiers import new_id

TRUSTED_SECONDS = 1.0
# An upper limit on the age of a cached value, whatever the stamps say.
MAX_AGE_SECONDS = 600.0
POLL_SECONDS = 0.4
# Longer than a transaction may take, so that a change that was written early and committed late is not missed.
WINDOW_SECONDS = 10
# After at most this long without a poll, the window still holds every change that was committed in the meantime.
MAX_SILENCE_SECONDS = 5.0
_MAX_CHANGES = 5_000
_SLOTS, _WIDTH = 4096, 8
_log = logging.getLogger("gatehouse.changes")


class _SecondsAgo(FunctionElement[datetime]):
    """The database's own time some seconds ago: order between machines never comes from their clocks."""

    type = UtcDateTime()
    inherit_cache = False

    def __init__(self, seconds: int) -> None:
        super().__init__()
        self.seconds = seconds


@compiles(_SecondsAgo)
def _mysql_seconds_ago(element: _SecondsAgo, _compiler: Any, **_options: Any) -> str:
    return f"UTC_TIMESTAMP(6) - INTERVAL {element.seconds} SECOND"


@compiles(_SecondsAgo, "sqlite")
def _sqlite_seconds_ago(element: _SecondsAgo, _compiler: Any, **_options: Any) -> str:
    return f"strftime('%Y-%m-%d %H:%M:%f000', 'now', '-{element.seconds} seconds')"


_RECENT = CompiledQuery(
    select(CacheInvalidation.organization_id, CacheInvalidation.id, CacheInvalidation.is_for_all)
    .where(CacheInvalidation.at > _SecondsAgo(WINDOW_SECONDS))
    .limit(_MAX_CHANGES),
    across_organizations=True,
)


@dataclass(slots=True)
class PollState:
    """When this process last polled a database for changes, in monotonic seconds."""

    polled_at: float = 0.0


class CacheStamp:
    """The state of an organization when a value was read; tells whether anything has changed since."""

    __slots__ = ("_at", "_poll_state", "_slot", "_stamp", "_stamps")

    def __init__(self, organization_id: str) -> None:
        config = current()
        self._stamps, self._slot = _stamps_of(config.instance), _slot_of(organization_id)
        self._poll_state = _poll_states.setdefault(config.database_url, PollState())
        self._stamp = self._stamps[self._slot : self._slot + _WIDTH]
        self._at = time.monotonic()

    @property
    def is_current(self) -> bool:
        """Return whether a value that was read under this stamp is still valid."""
        slot = self._slot
        if self._stamps[slot : slot + _WIDTH] != self._stamp:
            return False
        tick = time.monotonic()
        oldest = tick - TRUSTED_SECONDS
        return (
            self._at > oldest or self._poll_state.polled_at > oldest
        ) and tick - self._at < MAX_AGE_SECONDS


_mapped: dict[Path, mmap.mmap] = {}
_mapping = threading.Lock()
_poll_states: dict[str, PollState] = {}
_known_changes: dict[UUID, float] = {}


def invalidate(organization_id: str) -> None:
    """Make what is cached about the organization stale once the open transaction has committed."""
    db.session.execute(
        insert(CacheInvalidation).values(organization_id=organization_id, id=new_id(), at=_SecondsAgo(0))
    )
    on_commit(lambda: _renew(organization_id))


def invalidate_all(root_id: str) -> None:
    """Make what is cached about every organization stale once the open transaction has committed.

    The row is stored under the root organization's key.
    """
    db.session.execute(
        insert(CacheInvalidation).values(
            organization_id=root_id, id=new_id(), at=_SecondsAgo(0), is_for_all=True
        )
    )
    on_commit(clear)


def poll() -> None:
    """Apply the changes that other machines committed recently. Raises Unavailable or the database's error."""
    started = time.monotonic()
    changes = _RECENT.rows()
    state = _poll_states.setdefault(current().database_url, PollState())
    # After a long silence, and at the start, changes may have left the window before they were seen.
    if len(changes) == _MAX_CHANGES or started - state.polled_at > MAX_SILENCE_SECONDS:
        clear()
    for organization_id, change_id, is_for_all in changes:
        if change_id not in _known_changes and is_for_all:
            clear()
        elif change_id not in _known_changes:
            _renew(organization_id)
        _known_changes[change_id] = started
    for change_id in [key for key, seen in _known_changes.items() if seen < started - 2 * WINDOW_SECONDS]:
        del _known_changes[change_id]
    state.polled_at = started


def clear() -> None:
    """Make every cached value of this machine stale."""
    _stamps_of(current().instance)[:] = os.urandom(_SLOTS * _WIDTH)


def _renew(organization_id: str) -> None:
    # The stamp is random, so that two processes that renew it at once cannot bring back an earlier one.
    start = _slot_of(organization_id)
    _stamps_of(current().instance)[start : start + _WIDTH] = os.urandom(_WIDTH)


def _slot_of(organization_id: str) -> int:
    return zlib.crc32(organization_id.encode()) % _SLOTS * _WIDTH


def _stamps_of(folder: Path) -> mmap.mmap:
    stamps = _mapped.get(folder)
    if stamps is None:
        with _mapping:
            stamps = _mapped.get(folder) or _map(folder)
            _mapped[folder] = stamps
    return stamps


def _map(folder: Path) -> mmap.mmap:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(folder / "changes", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(descriptor).st_size < _SLOTS * _WIDTH:
                os.ftruncate(descriptor, _SLOTS * _WIDTH)
            return mmap.mmap(descriptor, _SLOTS * _WIDTH)
        finally:
            os.close(descriptor)
    except OSError:
        # Without the file this process learns of its neighbours' changes like another machine: within a second.
        _log.warning(
            "the cache stamps are not shared with the other processes of this machine", exc_info=True
        )
        return mmap.mmap(-1, _SLOTS * _WIDTH)
