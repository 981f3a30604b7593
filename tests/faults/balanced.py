"""Machines behind HAProxy, on one database server or on a cluster behind another HAProxy.

Both have the configuration files of docs/operations/files. The database's one asks ``maintenance database-nodes``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.faults.topology import (
    CLUSTER,
    NAME,
    Machine,
    Topology,
    create_served_account,
    is_cluster_node,
    served_url,
)
from tests.support import process
from tests.support.applications import environment
from tests.support.databases import MariaDBDatabase
from tests.support.galera import NodeDatabase
from tests.support.haproxy import HAProxy, gatehouse_names
from tests.support.mariadb import MariaDB
from tests.support.server_script import link_environment
from tests.support.servers import ROOT, LiveServer
from tests.support.set_clock import SetClock

_DATABASE_NODES = 3
# More than the load balancer takes to notice on a busy machine.
_DRAIN_SECONDS = 8
_START_SECONDS = 240


class BalancedTopology(Topology):
    """Machines behind a load balancer. ``machines`` is how many serve at first."""

    is_balanced = True

    @property
    def databases(self) -> list[MariaDB]:
        """The database servers."""
        return self._databases

    @property
    def urls(self) -> list[str]:
        """Where clients send requests: the load balancer."""
        return [self.url]

    @property
    def url(self) -> str:
        """The base URL, which leads to the load balancer."""
        return f"http://127.0.0.1:{self._port}"

    def describe(self) -> list[str]:
        """Return a line for each thing that an engineer may look at."""
        return [f"Gatehouse, behind HAProxy: {self.url}", *super().describe()]

    def add_machine(self) -> Machine:
        """Start one more machine with the release that the others run, and let the load balancer use it."""
        first = self.machines[0]
        machine = self._make_machine(first.server.database, first.server.root)
        machine.server.start(_START_SECONDS)
        self.machines.append(machine)
        self._front.reload(self._front_names())
        self.wait_until_used(machine)
        return machine

    def wait_until_used(self, machine: Machine) -> None:
        """Wait until the load balancer sends requests to a machine that was restarted."""
        process.wait_until(
            lambda: self._front.states().get(f"node{machine.number + 1}") == "UP",
            f"{machine} behind the load balancer",
            seconds=_START_SECONDS,
        )

    def written_database(self) -> MariaDB:
        """Return the server that the load balancer sends new connections to."""
        if self._back is None:
            return self._databases[0]
        states = self._back.states()
        up = [number for number in range(_DATABASE_NODES) if states[f"db{number + 1}"].startswith("UP")]
        return self._databases[up[0]]

    def serve(self) -> None:
        """Start the machines, and the load balancer in front of them."""
        super().serve()
        self._front.start()
        for machine in self.machines:
            self.wait_until_used(machine)

    def _prepare(self, count: int) -> None:
        instance = self.folder / "instance0"
        instance.mkdir(mode=0o700)
        self._port, self._plain_port = process.free_port(), process.free_port()
        self._back: HAProxy | None = None
        if self.kind == "galera":
            made = self._start_cluster([instance] * _DATABASE_NODES)
        elif self.kind == "group-replication":
            made = self._start_group(_DATABASE_NODES)
        else:
            made = self._start_one(1)
        self._databases = [database.server for database in made]
        if self.kind != "group-replication":
            create_served_account(self._databases[0])
        database = made[0]
        if is_cluster_node(self._databases[0]):
            database = self._balance_databases(instance)
        root = self._release or ROOT
        if root is not ROOT:
            link_environment(root)
        for number in range(count):
            self.machines.append(self._make_machine(database, root))
            if number == 0:
                self.make.root()
        self._front = HAProxy("haproxy-gatehouse.cfg", self.folder / "front", self._front_names())
        self._stack.callback(self._front.stop)

    def _balance_databases(self, instance: Path) -> MariaDBDatabase:
        """Start HAProxy in front of the nodes, and what tells it which can be written; return the way through it."""
        port, agent = process.free_port(), process.free_port()
        names = {"127.0.0.1:3306": f"127.0.0.1:{port}", "agent-port 3309": f"agent-port {agent}"}
        addresses = {}
        for number, database in enumerate(self._databases):
            addresses[f"db{number + 1}"] = f"127.0.0.1:{database.port}"
            names[f"10.0.0.1{number + 1}:3306"] = f"127.0.0.1:{database.port}"
        self._back = HAProxy("haproxy-database.cfg", self.folder / "back", names)
        self._stack.callback(self._back.stop)
        self._back.start()
        first = self._databases[0]
        database = NodeDatabase(first, NAME, first.tcp_url(NAME, port=port))
        env = os.environ | environment(database, instance, self.url) | {"DATABASE_URL": served_url(database)}
        command = [sys.executable, "-m", "flask", "--app", "wsgi", "maintenance", "database-nodes"]
        command += ["--listen", str(agent), *(f"{name}={address}" for name, address in addresses.items())]
        nodes = process.start(command, self.folder / "database-nodes.log", env=env, cwd=ROOT)
        self._stack.callback(process.stop, nodes)
        process.wait_until(
            lambda: self._back is not None and "UP" in self._back.states().values(),
            "the state of the database's nodes",
            seconds=_START_SECONDS,
        )
        return database

    def _make_machine(self, database: MariaDBDatabase, root: Path) -> Machine:
        number = len(self.machines)
        instance, clock = self.folder / f"instance{number}", SetClock(self.folder / f"clock{number}")
        instance.mkdir(mode=0o700, exist_ok=True)
        server = self.server(number, instance, database, clock.environment, root)
        if number:
            self._share_keys([self.machines[0].server.instance, instance])
        server.settings |= {
            "GATEHOUSE_BASE_URL": self.url,
            "GATEHOUSE_LOG_LEVEL": "info",
            "GATEHOUSE_PROXY_HOPS": "1",
            "GATEHOUSE_TRUSTED_HOSTS": f"127.0.0.1:{server.port}",
            "GATEHOUSE_DRAIN_SECONDS": str(_DRAIN_SECONDS),
        }
        if is_cluster_node(self._databases[0]):
            server.settings |= {**CLUSTER, "DATABASE_URL": served_url(database)}
        self._stack.callback(server.kill)
        return Machine(number, server, clock, database.server)

    def server(
        self, number: int, instance: Path, database: MariaDBDatabase, settings: Mapping[str, str], root: Path
    ) -> LiveServer:
        """Return the server of a machine, which is not started yet: script/server, as operators start it."""
        return LiveServer(
            database,
            instance,
            self.folder / f"machine{number}.log",
            settings={**settings, "GATEHOUSE_JANITOR": "on"},
            expected="",
            root=root,
            is_script=True,
        )

    def _front_names(self) -> dict[str, str]:
        """Return what replaces the names and addresses of the file, with one line for each machine."""
        nodes = [each.server.port for each in self.machines]
        return gatehouse_names(self._port, self._plain_port, nodes, f"127.0.0.1:{self._port}")
