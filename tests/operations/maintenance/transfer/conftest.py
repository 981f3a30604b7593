"""An exported organization, its file, another installation, and what moves an organization there."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import text

from app.extensions import db
from app.operations.directory import lookups
from app.operations.maintenance import archive, move
from app.operations.maintenance.move_peer import Peer
from app.operations.maintenance.receive import receive_organization
from app.operations.maintenance.transfer import export_organization, import_organization
from app.operations.store.transactions import transaction
from app.rules.actor import Actor
from tests.factories import Factory, MadeClient, MadeUser
from tests.oauth.conftest import FAST_KEYS, SCOPES, Flow
from tests.support.applications import application, forget
from tests.support.caches import clear_directory_cache
from tests.support.databases import Database, Rows

PASSPHRASE = "a barge of walnuts at noon"


@pytest.fixture(autouse=True)
def _cheap_passphrases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Derive keys with 1 MiB instead of 128: a test reads up to thirty files. The command's tests use the real cost."""
    monkeypatch.setitem(archive._SCRYPT, "n", 1 << 10)


@dataclass
class Moved:
    """An organization with everything that is exported, and its file."""

    organization: lookups.OrganizationSnapshot
    user: MadeUser
    client: MadeClient
    refresh_token: str
    file: bytes


@pytest.fixture(scope="session")
def installations(scratch: Path) -> Callable[[Database], Flask]:
    """Another installation on a database, created and migrated at first use."""
    made: dict[str, Flask] = {}

    def on(database: Database) -> Flask:
        if database.url not in made:
            folder = scratch / f"elsewhere-{database.engine}"
            folder.mkdir(mode=0o700)
            made[database.url] = application(database, folder, "http://localhost")
        return made[database.url]

    return on


class Beginnings:
    """What the tests of a module begin with: made by the first, and put back into the database for each later one."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[Any, Rows]] = {}

    def begin(self, name: str, database: Database, make: Callable[[], Any]) -> Any:
        """Return what ``make`` creates in the database, which is empty."""
        key = f"{name} in {database.engine}"
        if key in self._made:
            database.clean(to=self._made[key][1])
        else:
            self._made[key] = make(), database.rows()
        return self._made[key][0]


@pytest.fixture(scope="module")
def beginnings() -> Beginnings:
    return Beginnings()


@pytest.fixture
def elsewhere(
    database: Database,
    databases: Callable[[str], Database],
    installations: Callable[[Database], Flask],
    beginnings: Beginnings,
) -> Iterator[tuple[Flask, Database]]:
    """Another installation with other keys, the other database engine and its own root."""
    other = databases("mariadb" if database.engine == "sqlite" else "sqlite")
    # The rows that are there when an installation is made are its seed.
    other.clean()
    made = installations(other)
    forget(made)
    beginnings.begin("elsewhere", other, Factory(made).root)
    yield made, other
    other.clean()
    forget(made)


@pytest.fixture
def moved(app: Flask, database: Database, http: FlaskClient, make: Factory, beginnings: Beginnings) -> Moved:
    return beginnings.begin("moved", database, lambda: _make_moved(app, http, make))


def _make_moved(app: Flask, http: FlaskClient, make: Factory) -> Moved:
    make.root()
    acme = make.organization("acme", settings=FAST_KEYS | {"branding": {"display_name": "Acmé ☀"}})
    admin = make.user(acme, email="ada@acme.example", role="admin")
    client = make.client(acme, scopes=SCOPES)
    flow = Flow(app, http, make, client, admin)
    flow.sign_in()
    refresh_token = flow.redeem(flow.code(scope="openid offline_access")).get_json()["refresh_token"]
    return Moved(acme, admin, client, refresh_token, exported(app, "acme"))


def exported(app: Flask, slug: str) -> bytes:
    stream = io.BytesIO()
    with app.app_context():
        export_organization(operator(), slug, stream, PASSPHRASE)
    return stream.getvalue()


def operator() -> Actor:
    return Actor.system(lookups.get_root_organization().id, "tests")


def brought_in(app: Flask, file: bytes, passphrase: str = PASSPHRASE) -> Any:
    with app.app_context():
        return import_organization(operator(), io.BytesIO(file), passphrase)


class Interrupted(BaseException):
    """The moving process is killed."""


class CutPeer(Peer):
    """A peer that is lost before or after a command."""

    def __init__(self, peer: Peer, at: Callable[[str, int], str]) -> None:
        self._peer, self._at, self.calls = peer, at, []

    def call(self, command: str, **arguments: Any) -> Any:
        self.calls.append(command)
        where = self._at(command, self.calls.count(command))
        if where == "before":
            raise Interrupted
        result = self._peer.call(command, **arguments)
        if where == "after":
            raise Interrupted
        return result


@pytest.fixture(autouse=True)
def _short_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for no other process: none uses these databases. The wait is this and the database's timeout of 3 s."""
    monkeypatch.setattr(move, "SETTLE_SECONDS", -3.0)


@pytest.fixture
def robot(moved: Moved, make: Factory) -> MadeClient:
    """Create a client of the moved organization that gets tokens for itself."""
    return make.machine(moved.organization)


@pytest.fixture
def connect() -> Iterator[Callable[[Flask], Peer]]:
    """``connect(app)`` starts a receiver in the other installation."""
    ends: list[Callable[[], None]] = []

    def start(there: Flask) -> Peer:
        # The one before loses its peer, as when a moving process dies.
        while ends:
            ends.pop()()
        (commands, command_end), (answer_end, answers) = os.pipe(), os.pipe()
        writer, reader = os.fdopen(command_end, "w"), os.fdopen(answer_end)

        def serve() -> None:
            with there.app_context(), os.fdopen(commands) as incoming, os.fdopen(answers, "w") as outgoing:
                receive_organization(operator(), incoming, outgoing)

        thread = threading.Thread(target=serve)
        thread.start()

        def end() -> None:
            writer.close()
            thread.join()
            reader.close()

        ends.append(end)
        return Peer(reader, writer)

    yield start
    while ends:
        ends.pop()()


def token_of(app: Flask, robot: MadeClient) -> Any:
    data = {"grant_type": "client_credentials"}
    # One process serves two installations here.
    clear_directory_cache()
    return app.test_client().post("/oauth/token", data=data, headers=robot.basic)


def introspected(app: Flask, robot: MadeClient, token: str) -> Any:
    clear_directory_cache()
    reply = app.test_client().post("/oauth/introspect", data={"token": token}, headers=robot.basic)
    return reply.get_json()["active"]


@transaction
def change_row(moved: Moved, change: str) -> None:
    own = {"own": moved.organization.id.encode()}
    assert db.session.connection().execute(text(f"{change} WHERE organization_id = :own"), own).rowcount
