"""Two servers behind a load balancer are upgraded and put back one after the other, and no request fails."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.rules.identifiers import digest
from tests.factories import Factory, MadeClient
from tests.faults.traffic import Traffic
from tests.support import process
from tests.support.applications import application, environment
from tests.support.balancer import Balancer, balancing
from tests.support.databases import MariaDBDatabase
from tests.support.mariadb import MariaDB
from tests.support.server_script import Started, copy_to

pytestmark = [pytest.mark.mariadb, pytest.mark.slow]
# Longer than a check of the balancer takes on a busy machine.
DRAIN_SECONDS = 4
# A request every 25 ms: many while a balancer does not know of a stop, and the servers can start beside them.
PAUSE_SECONDS = 0.1
# A migration of the next release. It only adds, so the release before it goes on to serve.
NEXT_MIGRATION = """
import sqlalchemy as sa
from alembic import op

revision = "9999"
down_revision = "{head}"


def upgrade():
    op.add_column("access_tokens", sa.Column("added", sa.String(20), nullable=True))
    op.add_column("clients", sa.Column("added", sa.Integer(), nullable=False, server_default="0"))
    op.create_table("added_table", sa.Column("id", sa.Integer(), primary_key=True))


def downgrade():
    op.drop_table("added_table")
    op.drop_column("clients", "added")
    op.drop_column("access_tokens", "added")
"""


class Fleet:
    """Two servers behind a balancer on one database; ``release`` is the folder of their code."""

    def __init__(self, database: MariaDBDatabase, folder: Path, balancer: Balancer) -> None:
        self.database, self.balancer = database, balancer
        keys = folder / "instance"
        keys.mkdir(mode=0o700)
        self.settings = environment(database, keys, balancer.url) | {
            "GATEHOUSE_DRAIN_SECONDS": str(DRAIN_SECONDS),
            "GATEHOUSE_LOG_LEVEL": "warning",
        }
        self.make = Factory(application(database, keys, balancer.url))
        self.make.root()
        self.servers: list[Started] = []

    def start(self, release: Path) -> None:
        """Start one more server and wait until the balancer uses it."""
        port = process.free_port()
        trusted = f"127.0.0.1:{port}"
        server = Started(release, port=port, **self.settings, GATEHOUSE_TRUSTED_HOSTS=trusted)
        self.servers.append(server)
        self.balancer.backends.append(port)
        process.wait_until(lambda: port in self.balancer.ready, "the server is ready", seconds=60)

    def replace(self, release: Path, count: int = 2) -> None:
        """Stop so many servers and start one of the release in the place of each, one after the other."""
        for server in self.servers[:count]:
            assert server.end() == 0, server.output()
            self.servers.remove(server)
            self.balancer.backends.remove(server.port)
            self.start(release)
            # Its neighbour serves alone meanwhile and must not notice anything.
            assert set(self.balancer.backends) == set(self.balancer.ready)

    def stop(self) -> None:
        for server in self.servers:
            process.kill_group(server.process)


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """The code of this release."""
    (folder := tmp_path / "release").mkdir()
    return copy_to(folder)


@pytest.fixture
def next_release(tmp_path: Path, release: Path) -> Path:
    """The same code with one more migration."""
    folder = tmp_path / "next"
    shutil.copytree(release, folder, symlinks=True)
    versions = folder / "migrations" / "versions"
    head = max(path.name[:4] for path in versions.glob("[0-9]*.py"))
    (versions / "9999_next.py").write_text(NEXT_MIGRATION.format(head=head))
    return folder


@pytest.fixture
def fleet(mariadb: MariaDB, tmp_path: Path, release: Path, worker: str) -> Iterator[Fleet]:
    with balancing() as balancer:
        fleet = Fleet(MariaDBDatabase(mariadb, f"rolling_{worker}"), tmp_path, balancer)
        try:
            for _ in range(2):
                fleet.start(release)
            yield fleet
        finally:
            fleet.stop()


@pytest.fixture
def client(fleet: Fleet) -> MadeClient:
    return fleet.make.machine(fleet.make.organization(), "clients:read")


@contextlib.contextmanager
def without_failures(fleet: Fleet, client: MadeClient) -> Iterator[None]:
    """Request tokens during the ``with`` block; none may fail, and each must be stored."""
    with Traffic(fleet.balancer.url, client, threads=4, pause=PAUSE_SECONDS) as traffic:
        process.wait_until(lambda: len(traffic.tokens) > 20, "tokens are issued")
        yield
        done = len(traffic.tokens)
        process.wait_until(lambda: len(traffic.tokens) > done + 20, "tokens are still issued")
    assert (traffic.refused, traffic.cut, fleet.balancer.failures) == ([], 0, [])
    stored = {bytes(row[0]) for row in fleet.database.query("SELECT digest FROM access_tokens")}
    assert {digest(token) for token in traffic.tokens} <= stored


def test_rolling_upgrade_and_return_fail_no_request(
    fleet: Fleet, release: Path, next_release: Path, client: MadeClient
) -> None:
    """F11: readiness announces each stop, and the port stays open until the balancer has noticed.

    The first server of the next release migrates while the other still runs this one; this one also starts on the newer
    schema, beside it.
    """
    with without_failures(fleet, client):
        fleet.replace(next_release)
        assert fleet.database.query("SELECT version_num FROM alembic_version")[0][0] in ("9999", b"9999")
        assert fleet.database.count("added_table") == 0
        fleet.replace(release, 1)
