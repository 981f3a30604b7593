"""``python -m tests.bench.cpu``: CPU time, function calls, packets and statements of each flow, in one process.

The process sends itself requests, without a server and a network, on a private MariaDB. The smallest CPU time of
several short runs counts. Where other work makes even that differ from run to run, compare the function calls of a
request, which are always the same. ``--profile`` prints the functions too.
"""

from __future__ import annotations

import argparse
import cProfile
import io
import json
import logging
import pstats
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from app.fast_path import cache_invalidation
from app.mysql_connection import MySQLConnection
from tests.bench.instance import Instance
from tests.bench.metrics import layers
from tests.bench.scenarios import CHALLENGE, REDIRECT_URI, VERIFIER
from tests.support.databases import MariaDBDatabase
from tests.support.mariadb import MariaDB

FORM = "application/x-www-form-urlencoded"
SCOPE = "openid profile email offline_access"


class Client:
    """Sends requests to the application, as the server does."""

    def __init__(self, instance: Instance) -> None:
        self.app = instance.app
        self.machine = instance.machine.basic["Authorization"]
        self.web, self.client_id = instance.web.basic["Authorization"], instance.web.client_id
        [self.cookie] = instance.cookies(1)
        self.polled = 0.0

    def send(
        self, path: str, form: dict[str, str] | None = None, query: str = "", **headers: str
    ) -> tuple[dict[str, str], bytes]:
        """Return headers and body of a response that is no error."""
        body = urlencode(form).encode() if form is not None else b""
        environ = {
            "REQUEST_METHOD": "GET" if form is None else "POST",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "SERVER_NAME": "127.0.0.1",
            "SERVER_PORT": "80",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "CONTENT_TYPE": "" if form is None else FORM,
            "CONTENT_LENGTH": str(len(body)) if body else "",
            "HTTP_HOST": "127.0.0.1",
            "REMOTE_ADDR": "127.0.0.1",
            "wsgi.input": io.BytesIO(body),
            "wsgi.url_scheme": "http",
            **headers,
        }
        answered: list[Any] = []
        sent = b"".join(self.app.wsgi_app(environ, lambda *answer: answered.append(answer)))
        status, fields = answered[0][0], dict(answered[0][1])
        assert status < "4", (status, sent)
        return fields, sent

    def token(self, authorization: str, **form: str) -> dict[str, Any]:
        """Return a token response."""
        answer: dict[str, Any] = json.loads(
            self.send("/oauth/token", form, HTTP_AUTHORIZATION=authorization)[1]
        )
        return answer

    def code(self) -> str:
        """Return a new authorization code."""
        query = urlencode(
            {
                "response_type": "code",
                "client_id": self.client_id,
                "redirect_uri": REDIRECT_URI,
                "scope": SCOPE,
                "state": "xyz",
                "code_challenge": CHALLENGE,
                "code_challenge_method": "S256",
            }
        )
        location = self.send("/oauth/authorize", query=query, HTTP_COOKIE=self.cookie)[0]["Location"]
        return parse_qs(urlsplit(location).query)["code"][0]

    def redeem(self, code: str) -> dict[str, Any]:
        """Redeem the code."""
        sent = {"code": code, "redirect_uri": REDIRECT_URI, "code_verifier": VERIFIER}
        return self.token(self.web, grant_type="authorization_code", **sent)

    def poll(self) -> None:
        """Follow changes as a serving process does, outside of what is measured."""
        if time.monotonic() - self.polled > cache_invalidation.POLL_SECONDS:
            with self.app.app_context():
                cache_invalidation.poll()
            self.polled = time.monotonic()


def flows(client: Client) -> dict[str, Callable[[int], list[Callable[[], Any]]]]:
    """Return by name how a number of requests of each flow is prepared."""
    tokens = client.redeem(client.code())
    bearer = f"Bearer {tokens['access_token']}"
    refreshed = [""]

    def issue() -> str:
        return str(client.token(client.machine, grant_type="client_credentials")["access_token"])

    own = issue()

    def refreshes(count: int) -> list[Callable[[], Any]]:
        # Of a new grant: later ones of the same user may have ended the one before.
        refreshed[0] = client.redeem(client.code())["refresh_token"]
        return [refresh] * count

    def refresh() -> None:
        answer = client.token(client.web, grant_type="refresh_token", refresh_token=refreshed[0])
        refreshed[0] = answer["refresh_token"]

    def post(path: str, **form: str) -> Callable[[], Any]:
        return lambda: client.send(path, form, HTTP_AUTHORIZATION=client.machine)

    def repeat(act: Callable[[], Any]) -> Callable[[int], list[Callable[[], Any]]]:
        return lambda count: [act] * count

    return {
        "client_credentials": repeat(issue),
        "introspection": repeat(post("/oauth/introspect", token=own)),
        "userinfo": repeat(lambda: client.send("/oauth/userinfo", HTTP_AUTHORIZATION=bearer)),
        "revocation": lambda count: [post("/oauth/revoke", token=issue()) for _ in range(count)],
        "authorization": repeat(client.code),
        "code": lambda count: [partial(client.redeem, client.code()) for _ in range(count)],
        "refresh": refreshes,
        "discovery": repeat(lambda: client.send("/.well-known/openid-configuration")),
        "jwks": repeat(lambda: client.send("/oauth/jwks")),
    }


class Packets:
    """Counts what is sent to the database."""

    def __init__(self) -> None:
        self.packets: list[bytes] = []

    def install(self) -> None:
        """Note each packet of every connection."""
        packets, query, send, commit = (
            self.packets,
            MySQLConnection.query,
            MySQLConnection.send_waiting,
            MySQLConnection.commit,
        )

        def note_query(connection: MySQLConnection, statement: bytes) -> None:
            packets.append(statement)
            query(connection, statement)

        def note_waiting(connection: MySQLConnection, *last: bytes) -> None:
            packets.append(b";".join([*connection.waiting, *last]))
            send(connection, *last)

        def note_commit(connection: MySQLConnection) -> None:
            if not connection.get_autocommit() and not connection.waiting:
                packets.append(b"COMMIT")
            commit(connection)

        MySQLConnection.query, MySQLConnection.send_waiting, MySQLConnection.commit = (  # type: ignore[method-assign]
            note_query,
            note_waiting,
            note_commit,
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.cpu", description=__doc__)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--requests", type=int, default=60, help="in each run")
    parser.add_argument("--only", default="", help="comma-separated names of flows")
    parser.add_argument("--profile", action="store_true", help="print the functions that take the time")
    parser.add_argument("--packets", action="store_true", help="print what is sent to the database")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    folder = Path(tempfile.mkdtemp(prefix="gatehouse-cpu-"))
    database = MariaDB(folder / "mariadb")
    try:
        measure(Instance(MariaDBDatabase(database.start(), "gatehouse"), folder), options)
    finally:
        database.stop()
        shutil.rmtree(folder, ignore_errors=True)


def measure(instance: Instance, options: argparse.Namespace) -> None:
    """Print a line for each flow."""
    for layer in layers(instance.app.wsgi_app):
        if hasattr(layer, "enabled"):
            layer.enabled = False
    client = Client(instance)
    client.poll()
    wanted = {name for name in options.only.split(",") if name}
    for name, prepare in flows(client).items():
        if wanted and name not in wanted:
            continue
        used = [_run(client, prepare(options.requests)) for _ in range(options.runs)]
        packets = _count(client, prepare(1))
        statements = sum(packet.count(b";") + 1 for packet in packets)
        print(
            f"{name:<20}{min(used):>8.0f} µs {_calls(client, prepare(20)):>6} calls "
            f"{len(packets)} packets, {statements} statements",
            flush=True,
        )
        if options.packets:
            print(*(packet.decode("latin-1")[:4000] for packet in packets), sep="\n")
        if options.profile:
            _profile(client, prepare)


def _run(client: Client, acts: list[Callable[[], Any]]) -> float:
    client.poll()
    began = time.thread_time_ns()
    for act in acts:
        act()
    return (time.thread_time_ns() - began) / 1000 / len(acts)


def _calls(client: Client, acts: list[Callable[[], Any]]) -> int:
    """Return the function calls of a request."""
    profile = cProfile.Profile()
    client.poll()
    profile.enable()
    for act in acts:
        act()
    profile.disable()
    calls: int = pstats.Stats(profile).total_calls  # type: ignore[attr-defined]
    return calls // len(acts)


def _count(client: Client, acts: list[Callable[[], Any]]) -> list[bytes]:
    client.poll()
    counted = Packets()
    before = (MySQLConnection.query, MySQLConnection.send_waiting, MySQLConnection.commit)
    counted.install()
    try:
        for act in acts:
            act()
    finally:
        MySQLConnection.query, MySQLConnection.send_waiting, MySQLConnection.commit = before  # type: ignore[method-assign]
    return counted.packets


def _profile(client: Client, prepare: Callable[[int], list[Callable[[], Any]]]) -> None:
    profile = cProfile.Profile(time.thread_time)
    for _ in range(10):
        acts = prepare(60)
        client.poll()
        profile.enable()
        for act in acts:
            act()
        profile.disable()
    text = io.StringIO()
    stats = pstats.Stats(profile, stream=text).strip_dirs()
    stats.sort_stats("tottime").print_stats(45)
    stats.sort_stats("cumtime").print_stats(70)
    print(text.getvalue())


if __name__ == "__main__":
    main()
