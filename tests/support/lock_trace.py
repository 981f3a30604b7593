"""The row locks that transactions take in InnoDB, and which of them could deadlock."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import UniqueConstraint

from app.models import Base
from app.models.base import Digest
from tests.support.cut_connections import Cuts

TABLES = Base.metadata.tables
# Nobody looks for a row there before it is committed.
LOGS = {"attempts", "audit_events", "outbox", "revocation_log", "view_changes", "webhook_deliveries"}
_WRITE = re.compile(r"\s*(INSERT|UPDATE|DELETE)|.*(FOR UPDATE|FOR SHARE|LOCK IN SHARE MODE)", re.DOTALL)
_TARGET = re.compile(r"\s*(INSERT|UPDATE|DELETE)(?: IGNORE)?(?: INTO| FROM)? (\w+)")
_RECORD = re.compile(
    r"RECORD LOCKS space id (\d+) page no (\d+) n bits \d+ index \S+ of table `[^`]*`\.`([^`]*)` trx id \d+ "
    r"lock.mode (\w)|Record lock, heap no (\d+)"
)


class Lock(NamedTuple):
    """A lock on rows of a table, ``S`` or ``X``.

    ``row`` is where the row is stored, ``new`` for one that the transaction inserts, and None for rows that a statement
    would lock, although it finds none now.
    """

    table: str
    mode: str
    row: tuple[str, ...] | str | None


@dataclass(slots=True)
class Transaction:
    """The locks of one transaction in the order in which it takes them."""

    name: str
    locks: list[Lock] = field(default_factory=list)

    def has_exclusive(self, table: str) -> bool:
        """Return whether it has changed or locked rows of the table."""
        return any(lock.table == table and lock.mode == "X" for lock in self.locks)


class LockTrace(Cuts):
    """Reads the locks of this thread's transactions after each statement that writes or locks."""

    def __init__(self, cursor: Any) -> None:
        super().__init__()
        self.transactions: list[Transaction] = []
        # Of the request that is being sent, empty between two.
        self.request = ""
        self._cursor = cursor
        self._open: dict[int, Transaction] = {}

    def run(self, connection: Any, statement: str, execute: Callable[[], Any]) -> Any:
        """Execute the statement and read what its transaction has locked since the one before."""
        if connection.waiting:
            # A packet of statements, one by one.
            packet, connection.waiting = connection.waiting, []
            for each in packet:
                connection.query(each)
            return connection.commit() if statement.endswith(";COMMIT") else None
        thread = connection.thread_id()
        if statement in ("COMMIT", "ROLLBACK"):
            self._open.pop(thread, None)
        if not self.request or not _WRITE.match(statement):
            return super().run(connection, statement, execute)
        if thread not in self._open:
            self._open[thread] = Transaction(self.request)
            self.transactions.append(self._open[thread])
        # A statement that is its own transaction would have released its locks.
        is_own = connection.get_autocommit()
        if is_own:
            connection.autocommit(False)
        try:
            return super().run(connection, statement, execute)
        finally:
            self._read(self._open[thread], thread, statement)
            if is_own:
                connection.commit()
                connection.autocommit(True)

    def _read(self, transaction: Transaction, thread: int, statement: str) -> None:
        for lock in self._held(thread):
            # Another lock on a table is usually on the same row: in another index, or moved because it has grown.
            if lock not in transaction.locks and not transaction.has_exclusive(lock.table):
                transaction.locks.append(lock)
        match = _TARGET.match(statement)
        verb, target = match.groups() if match else ("", "")
        if verb == "INSERT" and target not in LOGS:
            transaction.locks.append(Lock(target, "X", "new"))
        elif verb in ("UPDATE", "DELETE") and not transaction.has_exclusive(target):
            transaction.locks.append(Lock(target, "X", None))

    def _held(self, thread: int) -> Iterator[Lock]:
        # The report quotes keys as they are stored. Every byte is a character of this code page.
        self._cursor.connection.set_character_set("cp850")
        self._cursor.execute("SHOW ENGINE INNODB STATUS")
        report = str(self._cursor.fetchone()[2])
        _, _, own = report.partition(f" thread id {thread},")
        at: Any = None
        for found in _RECORD.finditer(own.partition("---TRANSACTION")[0]):
            if found[5] is None:
                at = found
            elif found[5] != "1":
                # The first two records of a page are its bounds.
                yield Lock(at[3], at[4], (at[1], at[2], found[5]))


def find_upgrades(transactions: Sequence[Transaction]) -> list[str]:
    """Return the transactions that lock a row in shared mode and then exclusively: two of them deadlock."""
    return sorted(
        {
            f"{each.name}: {lock.table}"
            for each in transactions
            for number, lock in enumerate(each.locks)
            if lock.mode == "X" and lock._replace(mode="S") in each.locks[:number]
        }
    )


class Edge(NamedTuple):
    """A transaction that holds a lock and wants another one, with what else it holds (``gates``)."""

    held: tuple[str, str]
    wanted: tuple[str, str]
    gates: frozenset[tuple[str, str]]


def find_cycles(
    transactions: Sequence[Transaction], accepted: Collection[tuple[str, str]] = ()
) -> dict[tuple[str, str], list[str]]:
    """Return by two tables the names of two transactions of which each may wait for the other one.

    Not those that another lock keeps apart: on the organization, or on the row that the rows in question refer to.
    ``accepted`` are tables of which the first may be locked before the second. Circles of three are not looked for.
    """
    names = {edge: each.name for each in reversed(transactions) for edge in _edges(each)}
    by_tables = defaultdict(list)
    for edge in names:
        by_tables[edge.held[0], edge.wanted[0]].append(edge)
    for tables in accepted:
        by_tables.pop(tables, None)
    return {
        (one, other): [names[first], names[second]]
        for (one, other), firsts in by_tables.items()
        if one < other
        for first, second in itertools.product(firsts, by_tables.get((other, one), ()))
        if _may_deadlock(first, second)
    }


def _edges(transaction: Transaction) -> Iterator[Edge]:
    for number, wanted in enumerate(transaction.locks):
        if wanted.row == "new" and not _may_exist(wanted.table):
            continue
        before = transaction.locks[:number]
        for held in before:
            if held.table != wanted.table:
                tables = {held.table, wanted.table}
                gates = {lock[:2] for lock in before if lock.row and lock.table not in tables}
                yield Edge(held[:2], wanted[:2], frozenset(gates))


def _may_deadlock(first: Edge, second: Edge) -> bool:
    owners = _owners(first.held[0]) | _owners(second.held[0])
    return (
        "X" in (first.wanted[1], second.held[1])
        and "X" in (second.wanted[1], first.held[1])
        and not any(
            one[0] == other[0] and one[0] in owners and "X" in (one[1], other[1])
            for one, other in itertools.product(first.gates, second.gates)
        )
    )


def _owners(table: str) -> set[str]:
    """Return the tables of whose rows a row of the table belongs to exactly one."""
    found = {"organizations"}
    for key in TABLES[table].foreign_keys:
        if key.column.table.name not in found:
            found |= {key.column.table.name} | _owners(key.column.table.name)
    return found


def _may_exist(table: str) -> bool:
    """Return whether an INSERT may meet a row with the same key. Ids and digests are random."""
    keys = [item for item in TABLES[table].constraints if isinstance(item, UniqueConstraint)]
    chosen = [key for key in keys if not any(isinstance(column.type, Digest) for column in key.columns)]
    return bool(chosen) or "id" not in TABLES[table].primary_key.columns
