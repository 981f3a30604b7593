"""Engine profile: what a session on each kind of database server needs, so that no node answers from the past.

On a cluster that can be read or written at several nodes a node may lag behind: it has not applied yet what another
acknowledged a moment ago. Every session of such an engine therefore waits, at its first statement, until the node has
applied everything that was committed before. "Unknown" and "active" are then both true answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

AUTO = "auto"


class EngineProfile(Struct, frozen=True):
    """The session variables of single statements and of transactions that make reads wait, where that is needed.

    Single statements are reads or inserts. An insert need not wait: its unique keys are compared with what all nodes
    have committed. If it finds no row that it refers to, it is tried again after a read (``compiled_query``).
    """

    statement_variables: tuple[str, ...] = ()
    transaction_variables: tuple[str, ...] = ()


PROFILES: Mapping[str, EngineProfile] = {
    "single": EngineProfile(),
    # A bit mask: 1 for SELECT and BEGIN, 2 for UPDATE and DELETE, 4 for INSERT. Only a transaction's first statement
    # waits.
    "galera": EngineProfile(("wsrep_sync_wait = 1",), ("wsrep_sync_wait = 7",)),
    "group-replication": EngineProfile(
        ("group_replication_consistency = 'BEFORE'",),
        ("group_replication_consistency = 'BEFORE'",),
    ),
    # One writer on shared storage: what it reads is current. After a failover the old writer is read-only.
    "aurora": EngineProfile(),
}

_DETECT = (
    "SHOW VARIABLES WHERE Variable_name IN ('wsrep_on', 'group_replication_group_name', 'aurora_version')"
)
_UNREADY_STATUS = "SHOW STATUS WHERE Variable_name IN ('wsrep_ready', 'wsrep_cluster_status')"
_READ_ONLY = (
    "SHOW VARIABLES WHERE Variable_name IN ('read_only', 'super_read_only', 'innodb_read_only', 'wsrep_on')"
)
# The value of wsrep_local_state of a donor, and of a node that was taken out by wsrep_desync.
_DONOR = "2"


def detect(cursor: Any) -> str:
    """Return the name of the engine's profile by the server's variables."""
    cursor.execute(_DETECT)
    variables = dict(cursor.fetchall())
    if variables.get("aurora_version"):
        return "aurora"
    if variables.get("wsrep_on") == "ON":
        return "galera"
    return "group-replication" if variables.get("group_replication_group_name") else "single"


def why_not_writable(cursor: Any) -> str | None:
    """Return why the node cannot serve writes, for the log, or None if it can."""
    cursor.execute(_READ_ONLY)
    variables = dict(cursor.fetchall())
    for name in ("read_only", "super_read_only", "innodb_read_only"):
        if variables.get(name, "OFF") not in {"OFF", "0"}:
            return f"{name} is {variables[name]}"
    if variables.get("wsrep_on") != "ON":
        return None
    cursor.execute(_UNREADY_STATUS)
    status = dict(cursor.fetchall())
    if status.get("wsrep_cluster_status", "Primary") != "Primary":
        return f"wsrep_cluster_status is {status['wsrep_cluster_status']}"
    return None if status.get("wsrep_ready", "ON") == "ON" else "wsrep_ready is OFF"


def is_donor(cursor: Any) -> bool:
    """Return whether the node copies its data to one that joins: it lags behind, and may block for a moment."""
    cursor.execute("SHOW STATUS LIKE 'wsrep_local_state'")
    row = cursor.fetchone()
    return row is not None and row[1] == _DONOR
