"""Changes: how every worker hears that what it knows of an organization is out of date.

Clients and settings are asked for at each request and change seldom, so workers keep views of them. A view counts
while its organization's stamp is the one it was read under. The stamps stand in a small file that all processes of
this machine map into their memory: whoever changes something renews the stamp after its COMMIT and before its answer,
and from then on every worker here reads afresh. Other machines hear it from the table ``view_changes``, written in
the same transaction, which each process reads again and again. A process that has not heard for a second trusts no
view older than that. So what was revoked is dead everywhere within a second, and here at once (scale.md rule 14).
"""

from __future__ import annotations

import logging
import mmap
import os
import threading
import time
import zlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

from sqlalchemy import bindparam, insert, select

from app.config import current
from app.extensions import db
from app.models.event import CacheInvalidation
from app.operations.statements import Statement
from app.operations.store import clock
from app.operations.store.transactions import on_commit
from app.rules.identifiers import new_id

TRUSTED_SECONDS = 1.0
# Whatever the stamps say, nothing is kept for longer.
KEPT_SECONDS = 600.0
FOLLOWED_EVERY_SECONDS = 0.4
# Longer than a transaction may take, so that a change that was written early and committed late is not missed.
_WINDOW = timedelta(seconds=10)
# With it the window still holds what a transaction wrote early and committed late during the silence.
LONGEST_SILENCE_SECONDS = 5.0
_MOST_READ = 5_000
_SLOTS, _WIDTH = 4096, 8
_log = logging.getLogger("gatehouse.changes")

_SINCE = Statement(
    select(CacheInvalidation.organization_id, CacheInvalidation.id, CacheInvalidation.is_for_all)
    .where(CacheInvalidation.at > bindparam("since", type_=CacheInvalidation.at.type))
    .limit(_MOST_READ),
    across_organizations=True,
)


@dataclass(slots=True)
class _Ear:
    """When this process last heard of a database's changes, in monotonic seconds."""

    heard_at: float = 0.0


class Seen:
    """The moment at which something of an organization was read, and whether nothing has changed since."""

    __slots__ = ("_at", "_board", "_ear", "_place", "_stamp")

    def __init__(self, organization_id: str) -> None:
        config = current()
        self._board, self._place = _board(config.instance), _place(organization_id)
        self._ear = _ears.setdefault(config.database_url, _Ear())
        self._stamp = self._board[self._place : self._place + _WIDTH]
        self._at = time.monotonic()

    @property
    def is_current(self) -> bool:
        """Whether what was read then still counts."""
        place = self._place
        if self._board[place : place + _WIDTH] != self._stamp:
            return False
        tick = time.monotonic()
        oldest = tick - TRUSTED_SECONDS
        return (self._at > oldest or self._ear.heard_at > oldest) and tick - self._at < KEPT_SECONDS


_boards: dict[Path, mmap.mmap] = {}
_opening = threading.Lock()
_ears: dict[str, _Ear] = {}
_known: dict[UUID, datetime] = {}


def mark(organization_id: str) -> None:
    """Views of the organization and its clients are stale once the transaction under way has committed."""
    db.session.execute(
        insert(CacheInvalidation).values(organization_id=organization_id, id=new_id(), at=clock.now())
    )
    on_commit(lambda: _renew(organization_id))


def mark_all(root_id: str) -> None:
    """Views of every organization are stale once the transaction under way has committed; written under root's key."""
    db.session.execute(
        insert(CacheInvalidation).values(
            organization_id=root_id, id=new_id(), at=clock.now(), is_for_all=True
        )
    )
    on_commit(forget)


def follow() -> None:
    """What other machines changed in the last moments is known here. Raises Unavailable or the database's error."""
    began, now = time.monotonic(), clock.now()
    changes = _SINCE.rows(since=now - _WINDOW)
    ear = _ears.setdefault(current().database_url, _Ear())
    # After a silence, or at the start, changes may have gone by that no window shows any more.
    if len(changes) == _MOST_READ or began - ear.heard_at > LONGEST_SILENCE_SECONDS:
        forget()
    for organization_id, change_id, is_for_all in changes:
        if change_id not in _known and is_for_all:
            forget()
        elif change_id not in _known:
            _renew(organization_id)
        _known[change_id] = now
    for change_id in [key for key, seen in _known.items() if seen < now - 2 * _WINDOW]:
        del _known[change_id]
    ear.heard_at = began


def forget() -> None:
    """No view of any organization counts any more on this machine."""
    _board(current().instance)[:] = os.urandom(_SLOTS * _WIDTH)


def _renew(organization_id: str) -> None:
    # A random stamp: of two processes that renew at once, neither can bring back one that was there before.
    start = _place(organization_id)
    _board(current().instance)[start : start + _WIDTH] = os.urandom(_WIDTH)


def _place(organization_id: str) -> int:
    return zlib.crc32(organization_id.encode()) % _SLOTS * _WIDTH


def _board(folder: Path) -> mmap.mmap:
    board = _boards.get(folder)
    if board is None:
        with _opening:
            board = _boards.get(folder) or _open(folder)
            _boards[folder] = board
    return board


def _open(folder: Path) -> mmap.mmap:
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
        # Without the file this process hears of the others' changes as another machine's: within a second.
        _log.warning("changes are not shared with this machine's other processes", exc_info=True)
        return mmap.mmap(-1, _SLOTS * _WIDTH)
