"""Every write many times at once in one organization: no deadlock and no 503.

A deadlock is repeated by ``transaction`` and seldom reaches the caller, so the database's own count decides.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from flask import Flask

from app.database_errors import ErrorClass, classify_error
from app.operations.store import transactions
from tests.factories import Factory, bearer_header
from tests.journeys.conftest import REDIRECT_URI, SCOPE
from tests.oauth.conftest import FAST_KEYS
from tests.races.conftest import Race
from tests.support.applications import forget
from tests.support.concurrent_requests import Post, Reply, send_concurrently
from tests.support.databases import MariaDBDatabase
from tests.support.form_browser import FormBrowser
from tests.support.mariadb import MariaDB
from tests.support.matrix import BODIES, World, world_of
from tests.support.openapi import Operation
from tests.support.servers import LiveServer
from tests.support.stored_state import StateKeeper
from tests.support.valid_requests import Requests
from tests.support.world import Corner

pytestmark = [pytest.mark.mariadb, pytest.mark.live, pytest.mark.race]
CROWD = 32
EACH = 8
# In this process alone, whose threads take turns.
AT_ONCE = 4
WRITING = {"POST", "PUT", "PATCH", "DELETE"}
MAX_LOAD_PER_PROCESSOR = 4
CLIENT = {"name": "Orchard", "redirect_uris": ["https://orchard.example/callback"], "scopes": ["openid"]}


class Lag:
    """Measure in a ``with`` block for how long the machine or its disk stands still."""

    def __enter__(self) -> Lag:
        self.seconds = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._measure)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    @property
    def is_overload(self) -> bool:
        """Return whether this machine is too busy to tell a slow request from one that waits in vain."""
        return self.seconds > 0.3 or os.getloadavg()[0] > MAX_LOAD_PER_PROCESSOR * (os.cpu_count() or 1)

    def _measure(self) -> None:
        with tempfile.TemporaryFile() as file:
            while not self._stopping.is_set():
                began = time.monotonic()
                self._stopping.wait(0.01)
                file.write(b".")
                file.flush()
                os.fsync(file.fileno())
                self.seconds = max(self.seconds, time.monotonic() - began)


class Crowd:
    """A server whose database counts deadlocks of nobody else."""

    def __init__(self, server: LiveServer) -> None:
        self.server = server
        self.make = Factory(server.app)
        self.make.root()

    def deadlocks(self) -> int:
        """Return how many deadlocks the database has resolved since it started."""
        # MySQL has no status variable for it.
        found = "SELECT count FROM information_schema.innodb_metrics WHERE name = 'lock_deadlocks'"
        return int(self.server.database.query(found)[0][0])

    def send(self, posts: Sequence[Post]) -> list[Reply]:
        """Send the requests at once; none may deadlock or find the service unavailable.

        On an overloaded machine each request holds its rows for so long that the others wait for longer than a lock is
        waited for, which is answered by 503. Only deadlocks count there, and the 503 are sent again.
        """
        before = self.deadlocks()
        with Lag() as lag:
            replies = send_concurrently(self.server.url, posts, attempts=1)
        unavailable = [number for number, reply in enumerate(replies) if reply.status == 503]
        if unavailable and lag.is_overload:
            again = send_concurrently(self.server.url, [posts[number] for number in unavailable])
            for number, reply in zip(unavailable, again, strict=True):
                replies[number] = reply
        failed = Counter(reply.status for reply in replies if reply.status >= 500)
        sent = sorted({f"{post.method} {post.path}" for post in posts})
        assert (self.deadlocks() - before, failed) == (0, Counter()), (sent, self.latest_deadlock())
        return replies

    def latest_deadlock(self) -> list[str]:
        """Return the statements of the latest deadlock and the locks that they wanted."""
        report = str(self.server.database.query("SHOW ENGINE INNODB STATUS")[0][2])
        _, _, latest = report.partition("LATEST DETECTED DEADLOCK")
        latest = latest.partition("WE ROLL BACK")[0]
        return [
            line for line in latest.splitlines() if "RECORD LOCKS" in line or "`" in line or " SET " in line
        ]


@pytest.fixture(scope="module")
def crowd(scratch: Path) -> Iterator[Crowd]:
    """A server of two workers on a MariaDB of its own, in memory where there is room: many wait for each commit."""
    folder = scratch / "parallel-writes"
    mariadb = MariaDB(folder / "mariadb").start()
    (folder / "instance").mkdir(mode=0o700, parents=True)
    database = MariaDBDatabase(mariadb, "gatehouse")
    server = LiveServer(database, folder / "instance", folder / "server.log", expected="gatehouse.outbox")
    server.start()
    yield Crowd(server)
    try:
        server.stop()
    finally:
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
FIRST = (
    "rotateCredential",
    "updateRotation",
    "cancelRotation",
    "revokeUserSession",
    "unlinkUserIdentity",
    "deleteProvisioningToken",
)
LAST = (
    "deleteClient",
    "deleteUser",
    "deleteResource",
    "deleteScope",
    "deleteRole",
    "deleteGroup",
    "deleteWebhook",
    "deleteOrganization",
)
NAMING_A_USER = {
    "addGroupMember",
    "assignRole",
    "changeClientOwner",
    "changeResourceOwner",
    "transferOwnership",
}
OF_ROOT = {"createOrganization", "updateInstanceLimits"}
# What another operation of the table has decided, filled or not prepared, or needs another server.
WITHOUT_EFFECT = {
    "cancelAccessRequest",
    "cancelUserImport",
    "createCredential",
    "createIdentityProvider",
    "declineClientAccess",
    "declineClientRequest",
    "rejectRegistration",
    "resetUserSecondFactors",
    "startUserImport",
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
        path = _path(operation, corner)
        body = OLD if operation.id == "revokeTokens" else BODIES[operation.id]
        is_upload = isinstance(body, bytes)
        is_same = is_upload or operation.id in NAMING_A_USER
        return [
            Post(
                path,
                json=None if is_upload else body if is_same else distinct(body, number),
                upload=body if is_upload else None,
                headers=self._root if operation.id in OF_ROOT else bearer_header(token),
                method=operation.method.upper(),
            )
            for number in range(count)
        ]


def _path(operation: Operation, corner: Corner) -> str:
    path = operation.path
    for name, value in corner.ids.items():
        path = path.replace(f"{{{name}}}", value)
    return path


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


@pytest.mark.parametrize("part", ["portal", "account"])
def test_parallel_page_submissions_do_not_deadlock(
    app: Flask, requests: Requests, keeper: StateKeeper, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """Every form of the portal and of the account pages, four times at once in one browser."""
    deadlocks: list[Exception] = []

    def classify(error: Exception) -> ErrorClass:
        deadlocks.extend([error] if "Deadlock" in str(error) else [])
        return classify_error(error)

    monkeypatch.setattr(transactions, "classify_error", classify)
    wrong: list[str] = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for request in getattr(requests, part)():
            if request.method != "POST":
                continue
            keeper.read()
            with Lag() as lag:
                statuses = Counter(
                    pool.map(lambda _, each=request: each.send(app).status_code, range(AT_ONCE))
                )
            keeper.put_back()
            forget(app)
            # So many attempts at once may all count as too many.
            is_done = any(status < 400 or status == 429 for status in statuses)
            is_done = is_done or request.name.endswith(" refused")
            unexpected = {500} if lag.is_overload else {500, 503}
            if deadlocks or statuses.keys() & unexpected or not is_done:
                wrong.append(f"{request.name}: {dict(statuses)} {deadlocks[:1]}")
                deadlocks.clear()
    assert not wrong, "\n".join(wrong)


def test_parallel_leak_reports_do_not_deadlock(crowd: Crowd) -> None:
    client = crowd.make.client(crowd.make.organization())
    leaked = [{"token": client.secret, "type": "gatehouse", "url": "https://a.example/", "source": "commit"}]
    replies = crowd.send([Post("/leak-reports", json=leaked)] * EACH)
    assert Counter(reply.status for reply in replies) == {202: EACH}


def test_every_writing_route_of_the_api_is_sent_in_parallel(crowd: Crowd, world: World) -> None:
    routes = crowd.server.app.url_map
    sent = {
        routes.bind("localhost").match(_path(operation, world.acme), operation.method.upper())[0]
        for operation in Management(crowd, world).operations
    }
    writing = {
        rule.endpoint
        for rule in routes.iter_rules()
        if rule.endpoint.startswith(("api.", "api_v1_only.")) and (rule.methods or set()) & WRITING
    }
    # Sent above, without a management token.
    assert writing - sent == {"api.report_leaks"}


def test_parallel_flows_do_not_deadlock(crowd: Crowd) -> None:
    """Sign-ins, consents, codes, refresh tokens and revocations of one user at one client."""
    make, url = crowd.make, crowd.server.url
    organization = make.organization(settings=FAST_KEYS)
    client = make.client(organization, redirect_uris=[REDIRECT_URI], scopes=SCOPE.split())
    race = Race(crowd.server, make, client, make.user(organization))
    token = make.sign_in(race.user).token

    def code(_: int) -> str:
        person = FormBrowser(url)
        person.session.cookies.set(make.cookie_name(organization), token)
        return race.code(person)

    before = crowd.deadlocks()
    with ThreadPoolExecutor(EACH) as pool:
        codes = list(pool.map(code, range(EACH)))
    assert crowd.deadlocks() == before, crowd.latest_deadlock()
    issued = [reply.json for reply in crowd.send([race.redemption(code) for code in codes])]
    rotated = [reply.json for reply in crowd.send([race.refresh(each["refresh_token"]) for each in issued])]
    crowd.send(
        [race.refresh(each["refresh_token"]) for each in rotated]
        + [race.refresh(rotated[0]["refresh_token"])] * EACH
    )
    crowd.send([race.redemption(codes[0])] * EACH)
    crowd.send([race.revocation(each["access_token"]) for each in rotated])
    crowd.send([race.revocation(each["refresh_token"]) for each in rotated])
