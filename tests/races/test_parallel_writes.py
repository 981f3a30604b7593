"""Every write many times at once in one organization: no deadlock and no 503.

A deadlock is repeated by ``transaction`` and seldom reaches the caller, so the database's own count decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.factories import Factory, bearer_header
from tests.support.concurrent_requests import Post, Reply, send_concurrently
from tests.support.databases import MariaDBDatabase
from tests.support.mariadb import MariaDB
from tests.support.matrix import BODIES, World, world_of
from tests.support.openapi import Operation
from tests.support.servers import LiveServer
from tests.support.world import Corner

pytestmark = [pytest.mark.mariadb, pytest.mark.live, pytest.mark.race]
CROWD = 32
EACH = 16
CLIENT = {"name": "Orchard", "redirect_uris": ["https://orchard.example/callback"], "scopes": ["openid"]}


class Crowd:
    """A server whose database counts deadlocks of nobody else."""

    def __init__(self, server: LiveServer) -> None:
        self.server = server
        self.make = Factory(server.app)
        self.make.root()

    def deadlocks(self) -> int:
        """Return how many deadlocks the database has resolved since it started."""
        return int(self.server.database.query("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'")[0][1])

    def send(self, posts: Sequence[Post]) -> list[Reply]:
        """Send the requests at once; none may deadlock or find the service unavailable."""
        before = self.deadlocks()
        replies = send_concurrently(self.server.url, posts)
        failed = Counter((reply.status, reply.body[:200]) for reply in replies if reply.status >= 500)
        assert (self.deadlocks() - before, failed) == (0, Counter())
        return replies


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crowd]:
    """A server of two workers on a MariaDB of its own."""
    folder: Path = tmp_path_factory.mktemp("parallel-writes")
    mariadb = MariaDB(folder / "mariadb").start()
    (folder / "instance").mkdir(mode=0o700)
    database = MariaDBDatabase(mariadb, "gatehouse")
    server = LiveServer(database, folder / "instance", folder / "server.log", expected="gatehouse.outbox")
    server.start()
    yield Crowd(server)
    server.stop()
    mariadb.stop()


def test_parallel_registrations_in_one_organization_all_succeed(crowd: Crowd) -> None:
    headers = bearer_header(crowd.make.bearer(crowd.make.organization()))
    for _ in range(3):
        replies = crowd.send([Post("/api/v1/clients", json=CLIENT, headers=headers)] * CROWD)
        assert Counter(reply.status for reply in replies) == {201: CROWD}


def test_parallel_self_registrations_in_one_organization_all_succeed(crowd: Crowd) -> None:
    organization = crowd.make.organization(settings={"oauth": {"dynamic_registration": {"mode": "open"}}})
    path = f"/organizations/{organization.slug}/oauth/register"
    sent = {"client_name": "Orchard", "redirect_uris": ["https://orchard.example/callback"]}
    replies = crowd.send([Post(path, json=sent)] * EACH)
    assert Counter(reply.status for reply in replies) == {201: EACH}


def test_switching_secrets_to_once_leaves_no_sealed_copy(crowd: Crowd) -> None:
    """SE-7: a registration either sees the new setting or is complete before the copies are deleted."""
    organization = crowd.make.organization()
    headers = bearer_header(crowd.make.bearer(organization))
    client = crowd.make.client(organization)
    registering = Post("/api/v1/clients", json=CLIENT, headers=headers)
    rotation = f"/api/v1/clients/{client.client_id}/credentials/rotation"
    once = {"oauth": {"clients": {"secret_display": "once"}}}
    change = Post(f"/organizations/{organization.slug}/settings", json=once, headers=headers, method="PUT")
    crowd.send([*[registering] * 12, change, *[Post(rotation, json={}, headers=headers)] * 3])
    sealed = "SELECT COUNT(*) FROM client_credentials WHERE organization_id = %s AND sealed IS NOT NULL"
    assert crowd.server.database.query(sealed, organization.id.encode()) == [(0,)]


# First what another operation ends, last what deletes the objects of the others.
FIRST = ("rotateCredential", "updateRotation", "cancelRotation", "revokeUserSession")
LAST = ("deleteClient", "deleteUser", "deleteResource", "deleteRole", "deleteWebhook", "deleteOrganization")
OF_ROOT = {"createOrganization", "updateInstanceLimits"}
# What another operation of the table has decided, filled or not prepared.
WITHOUT_EFFECT = {
    "cancelUserImport",
    "createCredential",
    "declineClientRequest",
    "rejectRegistration",
    "resetUserSecondFactors",
}
# Older than everything here, so that the token that sends them stays valid.
OLD = {"all": True, "issued_before": "2020-01-01T00:00:00Z"}


def distinct(body: Any, number: int) -> Any:
    """Return the body with other values of its unique fields, so that each request creates something."""
    if isinstance(body, list):
        return [distinct(item, number) for item in body]
    if not isinstance(body, dict):
        return body
    forms = {"identifier": "{}/{}", "id": "{}-{}", "name": "{} {}", "description": "{} {}", "title": "{} {}"}
    forms["email"] = "{1}{0}"
    return {
        name: forms[name].format(value, number) if name in forms else value for name, value in body.items()
    }


def position(operation: Operation) -> tuple[int, int, bool]:
    """Return the sort key that keeps operations from deleting what others need."""
    first = FIRST.index(operation.id) if operation.id in FIRST else len(FIRST)
    last = LAST.index(operation.id) if operation.id in LAST else -1
    return first, last, operation.method == "delete"


class Management:
    """Requests of the management API in an organization that has one of everything."""

    def __init__(self, crowd: Crowd, world: World) -> None:
        self.operations = sorted((each for each in world.operations if each.method != "get"), key=position)
        self._root = bearer_header(crowd.make.bearer(crowd.make.root()))

    def posts(self, operation: Operation, corner: Corner, token: str, count: int) -> list[Post]:
        """Return so many requests of the operation, on one object or each creating one."""
        path = operation.path
        for name, value in corner.ids.items():
            path = path.replace(f"{{{name}}}", value)
        body = OLD if operation.id == "revokeTokens" else BODIES[operation.id]
        is_upload = isinstance(body, bytes)
        return [
            Post(
                path,
                json=None if is_upload else distinct(body, number),
                upload=body if is_upload else None,
                headers=self._root if operation.id in OF_ROOT else bearer_header(token),
                method=operation.method.upper(),
            )
            for number in range(count)
        ]


@pytest.fixture(scope="module")
def world(crowd: Crowd) -> World:
    """Two organizations with one of everything on the server."""
    return world_of(crowd.server.app, crowd.server.app.test_client(), crowd.make)


def test_parallel_management_writes_do_not_deadlock(crowd: Crowd, world: World) -> None:
    """Every writing operation of the API by itself."""
    management = Management(crowd, world)
    useless: dict[str, object] = {}
    for operation in management.operations:
        replies = crowd.send(management.posts(operation, world.acme, world.token, EACH))
        if not any(reply.status < 300 for reply in replies) and operation.id not in WITHOUT_EFFECT:
            useless[operation.id] = Counter((reply.status, reply.body[:150]) for reply in replies)
    assert useless == {}, list(useless)


def test_mixed_management_writes_do_not_deadlock(crowd: Crowd, world: World) -> None:
    """Different operations of the API at once in one organization."""
    management = Management(crowd, world)
    token = crowd.make.bearer(world.globex.organization)
    posts = [
        post
        for operation in management.operations
        if operation.id not in LAST
        for post in management.posts(operation, world.globex, token, 4)
    ]
    for start in range(4):
        crowd.send(posts[start::4])
