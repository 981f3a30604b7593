"""The files for HAProxy and nginx in front of the nodes: valid, and no request is sent twice."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support import process
from tests.support.concurrent_requests import Post, send
from tests.support.haproxy import FILES, HAProxy
from tests.support.https_server import certificate

pytestmark = [pytest.mark.either, pytest.mark.slow]
HOST = "id.example.com"


class Node:
    """Stands for a Gatehouse node: it is ready or not, and counts what it is sent."""

    def __init__(self) -> None:
        self.is_ready, self.dies = True, False
        self.requests: list[str] = []
        node = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/readyz":
                    assert self.headers["Host"] == HOST
                    self.send_response(200 if node.is_ready else 503)
                elif self.path == "/healthz":
                    self.send_response(200)
                else:
                    node.requests.append(self.headers["X-Forwarded-For"])
                    if node.dies:
                        self.connection.shutdown(socket.SHUT_RDWR)
                        return
                    self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def do_POST(self) -> None:
                self.do_GET()

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
        node.close()


@pytest.fixture
def front(nodes: tuple[Node, Node], tmp_path: Path) -> Iterator[tuple[HAProxy, str, str]]:
    """HAProxy in front of two nodes, with the URLs of its two ports."""
    port, plain = process.free_port(), process.free_port()
    pem = tmp_path / "id.pem"
    shutil.copyfile(certificate()[0], pem)
    names = {
        "bind :443 ssl crt": f"bind 127.0.0.1:{port}\n    bind 127.0.0.1:{process.free_port()} ssl crt",
        "/etc/haproxy/id.example.com.pem": str(pem),
        "bind :80": f"bind 127.0.0.1:{plain}",
        "10.0.0.21:8000": f"127.0.0.1:{nodes[0].port}",
        "10.0.0.22:8000": f"127.0.0.1:{nodes[1].port}",
    }
    haproxy = HAProxy("haproxy-gatehouse.cfg", tmp_path / "haproxy", names)
    haproxy.start()
    wait_for(haproxy, "UP", "UP")
    yield haproxy, f"http://127.0.0.1:{port}", f"http://127.0.0.1:{plain}"
    haproxy.stop()


def wait_for(haproxy: HAProxy, *states: str) -> None:
    """Wait until the nodes are in these states."""
    process.wait_until(lambda: tuple(haproxy.states().values()) == states, f"nodes {states}", seconds=60)


def ask(url: str) -> int:
    return send(url, Post("/oauth/token", {}, {"X-Forwarded-For": "192.0.2.1"})).status


def test_haproxy_tells_the_address_of_the_client_and_trusts_no_other(
    front: tuple[HAProxy, str, str], nodes: tuple[Node, Node]
) -> None:
    assert [ask(front[1]) for _ in range(4)] == [200] * 4
    assert {address for node in nodes for address in node.requests} == {"127.0.0.1"}
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
    for line in ("access_log off;", "large_client_header_buffers 4 16k;", "client_max_body_size 33m;"):
        assert line in text and line in guide
