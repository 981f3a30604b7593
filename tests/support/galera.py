"""A private Galera cluster of MariaDB nodes on the loopback interface, removed after the run."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import MySQLdb

from tests.support import process
from tests.support.databases import Database, MariaDBDatabase
from tests.support.mariadb import MariaDB

_PROVIDER = Path("/usr/lib/galera/libgalera_smm.so")
# Ports after a node's own: group communication, and incremental state transfer.
_GROUP, _TRANSFER, _PORTS = 1, 2, 3
_RECOVERY_SECONDS = 120
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
        find "$to" -mindepth 1 -maxdepth 1 ! -name galera.cache ! -name grastate.dat ! -name gvwstate.dat \\
            -exec rm -r {} +
        find "$data" -mindepth 1 -maxdepth 1 ! -name galera.cache ! -name grastate.dat ! -name gvwstate.dat \\
            ! -name 'ibtmp*' ! -name tables_flushed ! -name 'position*' -exec cp -r {} "$to" ';'
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
    rm "$data/position"
fi
"""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a node is: a host, and a port with the next ones."""

    host: str
    port: int

    @property
    def group(self) -> str:
        """The address of its group communication."""
        return f"{self.host}:{self.port + _GROUP}"


class GaleraNode(MariaDB):
    """One node. The first founds the cluster, the others join it, and so does the first when it is started again."""

    mysql = None

    def __init__(self, folder: Path, address: Address, members: Sequence[Address], password: str) -> None:
        host, port = address.host, address.port
        group = [member.group for member in members]
        provider = (
            f"base_port={port + _GROUP};gmcast.listen_addr=tcp://{address.group};"
            f"ist.recv_addr={host}:{port + _TRANSFER};gcache.size=32M"
        )
        options = [
            "--wsrep-on=ON",
            f"--wsrep-provider={_PROVIDER}",
            "--wsrep-cluster-name=gatehouse",
            f"--wsrep-cluster-address=gcomm://{','.join(group)}",
            f"--wsrep-node-address={address.group}",
            f"--wsrep-node-incoming-address={host}:{port}",
            f"--wsrep-provider-options={provider}",
            "--wsrep-sst-method=copy",
            "--binlog-format=ROW",
            "--innodb-autoinc-lock-mode=2",
        ]
        self._is_first, self._was_started = address == members[0], False
        super().__init__(folder, *options)
        self.port, self.password, self._member_options = port, password, options

    def begin(self) -> None:
        """Begin to start the node. It receives from another node what it lacks: all data at its first start."""
        if self._was_started:
            self._options = [*self._member_options, f"--wsrep-start-position={self._recovered_position()}"]
        elif self._is_first:
            self._options = [*self._member_options, "--wsrep-new-cluster"]
        else:
            (self.folder / "data" / "mysql").mkdir(parents=True)
        self._was_started = True
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
        process.wait_until(self.is_serving, f"the Galera node in {self.folder}", seconds=seconds)

    def has_left(self) -> bool:
        """Return whether it needs a restart: it has ended, or left its cluster because it could not apply a write."""
        try:
            return super().has_left() or self.status("wsrep_cluster_status") == "Disconnected"
        except MySQLdb.Error:
            return False

    def is_serving(self) -> bool:
        """Return whether the node is synced, and has applied what the others have committed."""
        try:
            with closing(self.connect()) as connection, connection.cursor() as cursor:
                cursor.execute("SET SESSION wsrep_sync_wait = 1")
                cursor.execute("SELECT 1")
            return self.status("wsrep_local_state_comment") == "Synced"
        except MySQLdb.Error:
            return False

    def _recovered_position(self) -> str:
        """Return the last transaction of the data folder, as ``galera_recovery`` of the packages does."""
        log = self.folder / "recovery.log"
        log.unlink(missing_ok=True)
        command = [*self._mariadb_commands()[1], *self._server_options(), *self._member_options]
        command += ["--user=root"] if os.geteuid() == 0 else []
        command += ["--wsrep-recover", "--skip-networking", f"--log-error={log}"]
        try:
            subprocess.run(command, check=False, capture_output=True, timeout=_RECOVERY_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(f"{self.folder} was not read within {_RECOVERY_SECONDS} s") from error
        found = re.findall(r"WSREP: Recovered position:? (\S+)", log.read_text(errors="replace"))
        if not found:
            raise RuntimeError(f"no recovered position:\n{log.read_text(errors='replace')[-2000:]}")
        return str(found[-1])


class GaleraCluster:
    """Some nodes, of which each can be written. ``hosts`` are their IP addresses, one for each node."""

    def __init__(self, folder: Path, hosts: Sequence[str] = ("127.0.0.1",) * 3) -> None:
        if not _PROVIDER.exists():
            raise RuntimeError("galera-4 not found. Type: sudo apt-get install -y galera-4")
        password = secrets.token_hex(16)
        first = process.free_port(len(hosts) * _PORTS)
        members = [Address(host, first + _PORTS * number) for number, host in enumerate(hosts)]
        self.nodes = [
            GaleraNode(folder / f"node{number}", member, members, password)
            for number, member in enumerate(members)
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
