"""What a run of faults is done to: machines that serve Gatehouse, and the database or cluster behind them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from flask_migrate import downgrade, upgrade

from app.operations.audit.chain import seal_all_events
from app.operations.audit.chain_verification import verify_audit_log
from app.operations.directory.lookups import OrganizationSnapshot
from tests.factories import Factory
from tests.support import network
from tests.support.applications import application
from tests.support.databases import MariaDBDatabase
from tests.support.galera import GaleraCluster, GaleraNode, NodeDatabase
from tests.support.group_replication import GroupNode, ReplicationGroup
from tests.support.mariadb import MariaDB
from tests.support.network import Cable
from tests.support.servers import ROOT, LiveServer
from tests.support.set_clock import SetClock

NAME = "gatehouse"
# The account of docs/deployment.md that servers use: an expelled member does not turn away one with all privileges.
_SERVED = "served"
_DATABASE_DISK_MEGABYTES = 700
_INSTANCE_DISK_MEGABYTES = 8
# Enough for a machine that runs other tests, too.
_START_SECONDS = 240
# More than a failover takes, as docs/deployment.md recommends for clusters.
CLUSTER = {"GATEHOUSE_DATABASE_TIMEOUT": "15"}


@dataclass(frozen=True, slots=True)
class Machine:
    """A server with its own instance folder and clock, and the database that it uses."""

    number: int
    server: LiveServer
    clock: SetClock
    database: MariaDB

    def __str__(self) -> str:
        return f"machine {self.number}"


class Topology:
    """The machines and databases of a run. The databases are started and migrated, the machines by ``serve``.

    ``is_isolated`` means that the process has network namespaces and mounts, so that cables can be pulled and disks
    filled. ``release`` is the folder of another release, which the machines run at first. ``kind`` is ``mariadb``,
    ``mysql``, ``galera``: then each machine uses a node of its own, or ``group-replication``: then all use the primary.
    """

    # Whether clients reach the machines by a load balancer.
    is_balanced = False

    def __init__(
        self, kind: str, folder: Path, *, machines: int, is_isolated: bool, release: Path | None
    ) -> None:
        self.kind, self.folder, self.is_isolated = kind, folder, is_isolated
        self.machines: list[Machine] = []
        self.cables: list[Cable] = []
        self._release, self._stack = release, ExitStack()
        try:
            self._prepare(machines)
            self._version = self.databases[0].version()
        except BaseException:
            self.stop()
            raise

    def serve(self) -> None:
        """Start the machines. Nothing may be added to the database in this process that an older release lacks."""
        if self._release is not None:
            self._downgrade(self._release)
        for machine in self.machines:
            machine.server.start(_START_SECONDS)

    def stop(self) -> None:
        """Stop every process."""
        self._stack.close()

    @property
    def databases(self) -> list[MariaDB]:
        """The database servers."""
        return list({id(machine.database): machine.database for machine in self.machines}.values())

    @property
    def url(self) -> str:
        """The base URL, which all machines have in common as they would behind a load balancer."""
        return self.machines[0].server.url

    @property
    def urls(self) -> list[str]:
        """Where clients send requests: the machines themselves."""
        return [machine.server.url for machine in self.machines]

    def wait_until_used(self, machine: Machine) -> None:
        """Wait until clients reach a machine that was restarted: at once, without a load balancer."""

    @property
    def make(self) -> Factory:
        """The factories, which work on the database of the first machine."""
        return Factory(self.machines[0].server.app)

    def describe(self) -> list[str]:
        """Return a line for each thing that an engineer may look at."""
        servers = [
            f"{machine}: {machine.server.url} (log: {machine.server.log})" for machine in self.machines
        ]
        first = f"mariadb --socket={self.databases[0].socket} --user=gatehouse --password={self.databases[0].password}"
        stores = [
            f"database server: {database.folder}, socket {database.socket}" for database in self.databases
        ]
        return [*servers, *stores, f"SQL: {first} {NAME}"]

    def upgrade(self) -> None:
        """Migrate the database to the schema of this release."""
        with self.make.app.app_context():
            upgrade()

    @property
    def version(self) -> str:
        """The version of the database server."""
        return self._version

    def audit(self, organization: OrganizationSnapshot) -> tuple[set[tuple[str, str]], list[str]]:
        """Return the audit events that every database server has, and the problems of the audit log's chain."""
        found = []
        for database in self.databases:
            rows = NodeDatabase(database, NAME).query(
                "SELECT action, target_id FROM audit_events WHERE organization_id = %s",
                organization.id.encode(),
            )
            found.append({(action.decode(), target.decode()) for action, target in rows})
        actor = self.make.system(organization)
        problems: list[str] = []
        with self.make.app.app_context():
            seal_all_events(actor, organization.id)
            after: int | None = 0
            while after is not None:
                verified = verify_audit_log(actor, after=after)
                problems += [f"{problem.message} {problem.position}" for problem in verified.problems]
                after = verified.next_position
        return set.intersection(*found), problems

    def database_disk(self, database: MariaDB) -> Path:
        """Return the folder on the database's own small disk."""
        return database.folder / "data"

    def _prepare(self, count: int) -> None:
        instances = [self.folder / f"instance{number}" for number in range(count)]
        for instance in instances:
            if self.is_isolated:
                self._mount_disk(instance, _INSTANCE_DISK_MEGABYTES)
            else:
                instance.mkdir(mode=0o700)
        if self.kind == "galera":
            databases = self._start_cluster(instances)
        elif self.kind == "group-replication":
            databases = self._start_group(count)
        else:
            databases = self._start_one(count)
        settings: dict[str, str] = {}
        for number, (instance, database) in enumerate(zip(instances, databases, strict=True)):
            clock = SetClock(self.folder / f"clock{number}")
            server = self.server(
                number, instance, database, settings | clock.environment, self._release or ROOT
            )
            settings = settings or {"GATEHOUSE_BASE_URL": server.url, "GATEHOUSE_LOG_LEVEL": "info"}
            settings |= CLUSTER if is_cluster_node(database.server) else {}
            if isinstance(database.server, GroupNode):
                settings["DATABASE_URL"] = served_url(database)
            server.settings |= settings
            self.machines.append(Machine(number, server, clock, database.server))
            if number == 0:
                self.make.root()
                self._share_keys(instances)
            self._stack.callback(server.kill)

    def server(
        self, number: int, instance: Path, database: MariaDBDatabase, settings: Mapping[str, str], root: Path
    ) -> LiveServer:
        """Return the server of a machine, which is not started yet."""
        return LiveServer(
            database,
            instance,
            self.folder / f"machine{number}.log",
            settings={**settings, "GATEHOUSE_JANITOR": "on"},
            # Every fault is logged, and the history says which of them clients noticed.
            expected="",
            root=root,
        )

    def _mount_disk(self, folder: Path, megabytes: int) -> None:
        network.mount_small_disk(folder, megabytes)
        self._stack.callback(network.unmount, folder)

    def _share_keys(self, instances: Sequence[Path]) -> None:
        for instance in instances[1:]:
            for key in instances[0].glob("*.key"):
                shutil.copy2(key, instance)

    def _downgrade(self, release: Path) -> None:
        """Give the database the schema of the release, whose newest migration is the last by name."""
        revisions = sorted((release / "migrations" / "versions").glob("[0-9]*.py"))
        with self.make.app.app_context():
            downgrade(revision=revisions[-1].name[:4])

    def _start_one(self, count: int) -> list[MariaDBDatabase]:
        server = MariaDB(self.folder / "database", "--bind-address=*")
        hosts = ["127.0.0.1"] * count
        if self.is_isolated:
            self._mount_disk(server.folder / "data", _DATABASE_DISK_MEGABYTES)
            server.launcher = network.create_namespace("database")
            joined = [network.connect_directly("database", number) for number in range(count)]
            hosts, self.cables = [host for host, _ in joined], [cable for _, cable in joined]
        self._stack.callback(server.stop)
        server.start()
        server.create_database(NAME)
        return [NodeDatabase(server, NAME, server.tcp_url(NAME, host)) for host in hosts]

    def _start_cluster(self, instances: Sequence[Path]) -> list[MariaDBDatabase]:
        if not self.is_isolated:
            cluster = GaleraCluster(self.folder / "galera", ["127.0.0.1"] * len(instances))
        else:
            namespaces = [f"node{number}" for number in range(len(instances))]
            launchers = [network.create_namespace(name) for name in namespaces]
            hosts, self.cables = network.connect_by_switch(namespaces)
            cluster = GaleraCluster(self.folder / "galera", hosts)
            for node, launcher in zip(cluster.nodes, launchers, strict=True):
                node.launcher = launcher
                self._mount_disk(node.folder / "data", _DATABASE_DISK_MEGABYTES)
        self._stack.callback(cluster.stop)
        cluster.found().create_database(NAME)
        # Migrated by the first node alone: what is created now need not be replicated.
        application(NodeDatabase(cluster.nodes[0], NAME), instances[0], "http://127.0.0.1")
        cluster.join()
        return [NodeDatabase(node, NAME) for node in cluster.nodes]

    def _start_group(self, count: int) -> list[MariaDBDatabase]:
        group = ReplicationGroup(self.folder / "group", count)
        self._stack.callback(group.stop)
        group.start()
        group.nodes[0].create_database(NAME)
        create_served_account(group.nodes[0])
        return [NodeDatabase(node, NAME, node.tcp_url(NAME, port=group.switch.port)) for node in group.nodes]


def create_served_account(database: MariaDB) -> None:
    """Create the account of docs/deployment.md that servers use."""
    database.execute(f"CREATE USER {_SERVED}@'%' IDENTIFIED BY '{database.password}'")
    database.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {NAME}.* TO {_SERVED}@'%'")


def served_url(database: MariaDBDatabase) -> str:
    """Return the URL of the database with the account that servers use."""
    return database.url.replace("//gatehouse:", f"//{_SERVED}:")


def check_out(revision: str, folder: Path) -> Path:
    """Write the files of a revision of this repository into the folder and return it."""
    folder.mkdir()
    archive = subprocess.run(["git", "archive", revision], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "x"], cwd=folder, input=archive, check=True)
    return folder


def is_cluster_node(database: MariaDB) -> bool:
    """Return whether the database is a node of a cluster."""
    return isinstance(database, GaleraNode | GroupNode)
