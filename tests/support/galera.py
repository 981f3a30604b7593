"""A private Galera cluster of MariaDB nodes on the loopback interface, removed after the run."""

from __future__ import annotations

import os
import secrets
from contextlib import closing
from pathlib import Path

import MySQLdb

from tests.support import process
from tests.support.databases import Database, MariaDBDatabase
from tests.support.mariadb import MariaDB

_PROVIDER = Path("/usr/lib/galera/libgalera_smm.so")
# Ports after a node's own: group communication, and incremental state transfer.
_GROUP, _TRANSFER, _PORTS = 1, 2, 3
# The snapshot transfer of nodes on one machine: the donor copies its data folder while its tables are flushed. The
# server runs it by name. Its own scripts are in a package that also installs a system service.
_COPY = """#!/bin/sh
while [ $# -gt 0 ]; do
    case $1 in
    --role) role=$2 ;;
    --address) address=$2 ;;
    --datadir) data=${2%/} ;;
    --gtid) position=$2 ;;
    --bypass) bypass=yes ;;
    esac
    shift
done
if [ "$role" = donor ]; then
    to=/${address#*/}
    if [ -z "$bypass" ]; then
        rm -f "$data/tables_flushed"
        echo "flush tables"
        until [ -s "$data/tables_flushed" ]; do sleep 0.05; done
        find "$data" -mindepth 1 -maxdepth 1 ! -name galera.cache ! -name grastate.dat ! -name gvwstate.dat \\
            ! -name 'ibtmp*' ! -name tables_flushed -exec cp -r {} "$to" ';'
        rm "$data/tables_flushed"
        echo continue
    fi
    echo "$position" >"$to/position.new"
    mv "$to/position.new" "$to/position"
    echo "done $position"
else
    rm -f "$data/position"
    echo "ready $address$data"
    until [ -s "$data/position" ]; do sleep 0.05; done
    cat "$data/position"
fi
"""


class GaleraNode(MariaDB):
    """One node. The first founds the cluster, the others join it."""

    mysql = None

    def __init__(self, folder: Path, port: int, members: list[int], password: str) -> None:
        group = [f"127.0.0.1:{member + _GROUP}" for member in members]
        provider = (
            f"base_port={port + _GROUP};gmcast.listen_addr=tcp://127.0.0.1:{port + _GROUP};"
            f"ist.recv_addr=127.0.0.1:{port + _TRANSFER};gcache.size=32M"
        )
        options = [
            "--wsrep-on=ON",
            f"--wsrep-provider={_PROVIDER}",
            "--wsrep-cluster-name=gatehouse",
            f"--wsrep-cluster-address=gcomm://{','.join(group)}",
            f"--wsrep-node-address=127.0.0.1:{port + _GROUP}",
            f"--wsrep-node-incoming-address=127.0.0.1:{port}",
            f"--wsrep-provider-options={provider}",
            "--wsrep-sst-method=copy",
            "--binlog-format=ROW",
            "--innodb-autoinc-lock-mode=2",
        ]
        self._is_first = port == members[0]
        if self._is_first:
            options.append("--wsrep-new-cluster")
        super().__init__(folder, *options)
        self.port, self.password = port, password

    def begin(self) -> None:
        """Begin to start the node. All but the first receive their data from another node."""
        if not self._is_first:
            (self.folder / "data" / "mysql").mkdir(parents=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        script = self.folder / "wsrep_sst_copy"
        script.write_text(_COPY)
        script.chmod(0o700)
        self.environment["PATH"] = f"{self.folder}:{os.environ['PATH']}"
        super().begin()

    def status(self, name: str) -> str:
        """Return a status variable of the node."""
        with closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("SHOW STATUS LIKE %s", (name,))
            row = cursor.fetchone()
        return "" if row is None else str(row[1])

    def wait(self, seconds: float = 60.0) -> None:
        """Wait until the node is a synced member of its cluster."""
        super().wait(seconds)
        process.wait_until(self._is_synced, f"the Galera node in {self.folder}", seconds=seconds)

    def _is_synced(self) -> bool:
        try:
            return self.status("wsrep_local_state_comment") == "Synced"
        except MySQLdb.Error:
            return False


class GaleraCluster:
    """Some nodes, of which each can be written."""

    def __init__(self, folder: Path, size: int = 3) -> None:
        if not _PROVIDER.exists():
            raise RuntimeError("galera-4 not found. Type: sudo apt-get install -y galera-4")
        password = secrets.token_hex(16)
        first = process.free_port(size * _PORTS)
        members = [first + _PORTS * number for number in range(size)]
        self.nodes = [
            GaleraNode(folder / f"node{number}", port, members, password)
            for number, port in enumerate(members)
        ]

    def found(self) -> GaleraNode:
        """Start the first node, alone: what is created now need not be replicated."""
        self.nodes[0].start()
        return self.nodes[0]

    def join(self) -> None:
        """Start the other nodes, one after the other, and wait until they are synced."""
        for node in self.nodes[1:]:
            node.start()

    def stop(self) -> None:
        """Stop all nodes and delete their data folders."""
        for node in self.nodes:
            node.stop()


class NodeDatabase(MariaDBDatabase):
    """A database that exists, seen from one node; ``url`` may lead to it another way."""

    def __init__(self, server: MariaDB, name: str, url: str | None = None) -> None:
        Database.__init__(self)
        self.server, self.name = server, name
        self.url = server.url(name) if url is None else url
