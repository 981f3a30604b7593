"""The files for HAProxy and nginx in front of the nodes: valid, no request is sent twice, and no flood gets far."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl

import pytest

from app.rules.identifiers import (
    ACCESS_TOKEN,
    CLIENT_SECRET,
    format_client_id,
    new_id,
    new_routing_key,
    new_token,
)
from app.scim.requests import MAX_BODY_BYTES
from tests.support import process
from tests.support.concurrent_requests import Post, send
from tests.support.haproxy import FILES, HAProxy
from tests.support.https_server import certificate

pytestmark = [pytest.mark.either, pytest.mark.slow]
HOST = "id.example.com"


class Node:
    """Stands for a Gatehouse node: it is ready or not, and counts what it is sent.

    Callers of ``refused`` get its status, those of ``held`` wait for ``release``.
    """

    def __init__(self) -> None:
        self.is_ready, self.dies = True, False
        self.requests: list[tuple[str, str | None]] = []
        self.refused: dict[str, int] = {}
        self.held: set[str] = set()
        self.release = threading.Event()
        node = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/readyz":
                    assert self.headers["Host"] == HOST
                    self.send_response(200 if node.is_ready else 503)
                elif self.path == "/healthz":
                    self.send_response(200)
                else:
                    caller = self.headers["Authorization"] or self._body()
                    node.requests.append((self.headers["X-Forwarded-For"], caller))
                    if node.dies:
                        self.connection.shutdown(socket.SHUT_RDWR)
                        return
                    if caller in node.held:
                        node.release.wait(60)
                    self.send_response(node.refused.get(caller, 200))
                self.send_header("Content-Length", "0")
                self.end_headers()

            def do_POST(self) -> None:
                self.do_GET()

            def _body(self) -> str:
                return self.rfile.read(int(self.headers["Content-Length"] or 0)).decode()

            def log_message(self, *words: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", process.free_port()), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self.server.server_address[1])

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def nodes() -> Iterator[tuple[Node, Node]]:
    made = Node(), Node()
    yield made
    for node in made:
        node.release.set()
        node.close()


@pytest.fixture
def front(
    nodes: tuple[Node, Node], tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[tuple[HAProxy, str, str]]:
    """HAProxy in front of two nodes, with the URLs of its two ports. A parameter is how long a refusal counts."""
    port, plain = process.free_port(), process.free_port()
    pem = tmp_path / "id.pem"
    shutil.copyfile(certificate()[0], pem)
    names = {
        # The whole line besides, on a port that nobody asks.
        "    bind :443 ssl": f"    bind 127.0.0.1:{port}\n    bind 127.0.0.1:{process.free_port()} ssl",
        # Not every machine has IPv6.
        "    bind :::443 v6only ssl crt /etc/haproxy/id.example.com.pem alpn h2,http/1.1\n": "",
        "/etc/haproxy/id.example.com.pem": str(pem),
        "bind :80": f"bind 127.0.0.1:{plain}",
        "    bind :::80 v6only\n": "",
        "10.0.0.21:8000": f"127.0.0.1:{nodes[0].port}",
        "10.0.0.22:8000": f"127.0.0.1:{nodes[1].port}",
        # A busy machine does not let the flood wait longer than it may.
        "timeout queue 5s": "timeout queue 60s",
        "gpc0_rate(10s)": f"gpc0_rate({getattr(request, 'param', '10s')})",
    }
    haproxy = HAProxy("haproxy-gatehouse.cfg", tmp_path / "haproxy", names)
    haproxy.start()
    wait_for(haproxy, "UP", "UP")
    yield haproxy, f"http://127.0.0.1:{port}", f"http://127.0.0.1:{plain}"
    haproxy.stop()


def wait_for(haproxy: HAProxy, *states: str) -> None:
    """Wait until the nodes are in these states."""
    process.wait_until(lambda: tuple(haproxy.states().values()) == states, f"nodes {states}", seconds=60)


def ask(url: str, caller: str = "", path: str = "/oauth/token") -> int:
    """Send a request whose caller is an Authorization header or a body."""
    headers = {"X-Forwarded-For": "192.0.2.1"}
    if " " in caller:
        return send(url, Post(path, {}, headers | {"Authorization": caller})).status
    return send(url, Post(path, parse_qsl(caller), headers)).status


def refuse(caller: str, nodes: tuple[Node, Node], status: int = 429) -> None:
    """Let both nodes refuse the requests of a caller."""
    for node in nodes:
        node.refused[caller] = status


def arrived(nodes: tuple[Node, Node], *callers: str) -> int:
    """Return how many requests of these callers have arrived at the nodes."""
    return sum(caller in callers for node in nodes for _, caller in node.requests)


def basic(organization_id: str) -> str:
    """Return the header of a new client of the organization."""
    pair = f"{format_client_id(organization_id, new_id())}:{new_token(CLIENT_SECRET, organization_id)}"
    return f"Basic {b64encode(pair.encode()).decode()}"


def test_haproxy_tells_the_address_of_the_client_and_trusts_no_other(
    front: tuple[HAProxy, str, str], nodes: tuple[Node, Node]
) -> None:
    assert [ask(front[1]) for _ in range(4)] == [200] * 4
    assert {address for node in nodes for address, _ in node.requests} == {"127.0.0.1"}
    assert send(front[2], Post("/portal", None, method="GET")).status == 301
    assert ask(front[2]) == 403


def test_haproxy_repeats_only_what_a_node_did_not_accept(
    front: tuple[HAProxy, str, str], nodes: tuple[Node, Node]
) -> None:
    for node in nodes:
        node.dies = True
    assert ask(front[1]) == 502
    assert sum(len(node.requests) for node in nodes) == 1
    nodes[0].close()
    nodes[1].dies = False
    assert [ask(front[1]) for _ in range(4)] == [200] * 4


def test_haproxy_leaves_a_node_that_drains_and_uses_living_ones_if_none_is_ready(
    front: tuple[HAProxy, str, str], nodes: tuple[Node, Node]
) -> None:
    nodes[0].is_ready = False
    wait_for(front[0], "DOWN", "UP")
    assert [ask(front[1]) for _ in range(4)] == [200] * 4
    assert len(nodes[0].requests) == 0
    nodes[1].is_ready = False
    wait_for(front[0], "DOWN", "DOWN")
    assert [ask(front[1]) for _ in range(4)] == [200] * 4


@pytest.mark.parametrize("front", ["1h"], indirect=True)
def test_haproxy_holds_a_caller_that_repeats_refused_requests(
    front: tuple[HAProxy, str, str], nodes: tuple[Node, Node]
) -> None:
    caller, other = basic(new_routing_key()), basic(new_routing_key())
    refuse(caller, nodes)
    assert [ask(front[1], caller) for _ in range(51)] == [429] * 51
    assert arrived(nodes, caller) == 51
    with ThreadPoolExecutor(4) as pool:
        held = [pool.submit(ask, front[1], caller) for _ in range(4)]
        assert [ask(front[1], other) for _ in range(4)] == [200] * 4
        assert [each.result() for each in held] == [429] * 4
    assert arrived(nodes, caller) == 51
    assert ask(front[1], caller, "/oauth/revoke") == 429
    assert arrived(nodes, caller) == 52


@pytest.mark.parametrize("front", ["2s"], indirect=True)
def test_haproxy_serves_a_caller_again_that_has_waited(
    front: tuple[HAProxy, str, str], nodes: tuple[Node, Node]
) -> None:
    caller = basic(new_routing_key())
    refuse(caller, nodes)

    def is_held(_number: int) -> bool:
        before = arrived(nodes, caller)
        return ask(front[1], caller) == 429 and arrived(nodes, caller) == before

    with ThreadPoolExecutor(8) as pool:
        process.wait_until(lambda: any(pool.map(is_held, range(8))), "HAProxy holds the caller")
    for node in nodes:
        del node.refused[caller]
    process.wait_until(lambda: ask(front[1], caller) == 200, "the caller is served again")


def test_haproxy_leaves_other_organizations_their_way_past_one_that_floods(
    front: tuple[HAProxy, str, str], nodes: tuple[Node, Node]
) -> None:
    flooding, others = new_routing_key(), new_routing_key()
    clients = [
        caller
        for _ in range(6)
        for caller in (
            basic(flooding),
            f"Bearer {new_token(ACCESS_TOKEN, flooding)}",
            f"client_secret={new_token(CLIENT_SECRET, flooding)}",
        )
    ]
    # A stranger names the organization, but was never accepted.
    other, stranger = basic(others), basic(flooding)
    assert [ask(front[1], client) for client in (*clients, other)] == [200] * 19
    for node in nodes:
        node.held.update(clients)
        node.requests.clear()
    refuse(stranger, nodes, 401)

    def counts() -> tuple[int, int]:
        return arrived(nodes, *clients), front[0].waiting("crowded")

    with ThreadPoolExecutor(len(clients)) as pool:
        flood = [pool.submit(ask, front[1], client) for client in clients]
        process.wait_until(lambda: sum(counts()) == len(clients), "the flood")
        # Four at once, and three places at each of two nodes.
        assert counts()[0] <= 10
        assert [ask(front[1], other) for _ in range(4)] == [200] * 4
        assert [ask(front[1], stranger) for _ in range(4)] == [401] * 4
        for node in nodes:
            node.release.set()
        assert [each.result() for each in flood] == [200] * len(clients)


def test_nginx_accepts_its_file_where_it_is_installed(tmp_path: Path) -> None:
    text = (FILES / "nginx-gatehouse.conf").read_text()
    pem, _ = certificate()
    for name in ("fullchain.pem", "privkey.pem"):
        shutil.copyfile(pem, tmp_path / name)
    (tmp_path / "gatehouse.conf").write_text(text.replace(f"/etc/letsencrypt/live/{HOST}", str(tmp_path)))
    main = tmp_path / "nginx.conf"
    main.write_text(f"pid {tmp_path}/pid;\nevents {{}}\nhttp {{ include {tmp_path}/gatehouse.conf; }}\n")
    nginx = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if nginx is not None:
        checked = subprocess.run([nginx, "-t", "-c", str(main)], check=False, capture_output=True, text=True)
        assert "syntax is ok" in checked.stderr, checked.stderr
    # What both files and the deployment guide have in common.
    guide = (FILES.parents[1] / "deployment.md").read_text()
    for line in (
        "access_log off;",
        "large_client_header_buffers 4 16k;",
        # A redirect is as long as the request that it answers. By default, nginx answers 502 for more than 4 kB.
        "proxy_buffer_size 64k;",
        "client_max_body_size 33m;",
        f"location ~ /scim/v2/ {{ client_max_body_size {MAX_BODY_BYTES // 1024}k;",
        "listen [::]:443 ssl http2;",
    ):
        assert line in text and line in guide, line
