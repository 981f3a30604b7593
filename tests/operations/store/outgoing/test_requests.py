"""Outgoing requests: pinned address, verified name, and limited cost of external servers (SF-2 to SF-4)."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from flask import Flask

from app.operations.clients.sector_documents import fetch_sector_document
from app.operations.store import outgoing_http
from app.operations.store.outgoing_http import OutgoingRequestFailed
from app.operations.store.transactions import transaction
from app.rules.errors import InvalidInput
from app.rules.store.outgoing_http import OutgoingRequestBlocked, Target
from tests.support.https_server import HttpsServer, Request, Response, https_server, reaching
from tests.support.process import wait_until

OURS, THEIRS = "ours", "theirs"


def answer(request: Request) -> Response:
    if request.path == "/redirect":
        return Response(302, headers={"Location": "https://localhost:1/elsewhere"})
    if request.path == "/large":
        return Response(200, b"x" * 70_000)
    if request.path == "/packed":
        return Response(200, b"\x1f\x8b", {"Content-Encoding": "gzip"})
    return Response(200, b'{"ok": true}', {"Content-Type": "application/json"})


@pytest.fixture(scope="module")
def server() -> Iterator[HttpsServer]:
    with https_server(answer) as running:
        yield running


@pytest.fixture
def reached(context: Flask, server: HttpsServer, monkeypatch: pytest.MonkeyPatch) -> HttpsServer:
    """The server, which the operator allows."""
    monkeypatch.setitem(context.config, "GATEHOUSE", reaching(context.config["GATEHOUSE"], server))
    server.requests.clear()
    return server


def test_get_returns_status_headers_and_body(reached: HttpsServer) -> None:
    reply = outgoing_http.get(
        f"{reached.base_url}/keys?a=%20b", organization_id=OURS, accept="application/jwk-set+json"
    )
    assert (reply.status, reply.headers["content-type"], reply.body) == (
        200,
        "application/json",
        b'{"ok": true}',
    )
    (request,) = reached.requests
    assert (request.method, request.path) == ("GET", "/keys?a=%20b")
    assert request.headers["host"] == f"localhost:{reached.port}"
    assert request.headers["accept"] == "application/jwk-set+json"
    assert request.headers["accept-encoding"] == "identity"


def test_post_sends_its_body(reached: HttpsServer) -> None:
    outgoing_http.post(
        f"{reached.base_url}/out",
        organization_id=OURS,
        body=b"a=b",
        content_type="application/x-www-form-urlencoded",
    )
    (request,) = reached.requests
    assert (request.method, request.body) == ("POST", b"a=b")
    assert request.headers["content-type"] == "application/x-www-form-urlencoded"


def test_redirect_is_not_followed(reached: HttpsServer) -> None:
    """SF-2."""
    assert outgoing_http.get(f"{reached.base_url}/redirect", organization_id=OURS).status == 302
    assert len(reached.requests) == 1


def test_oversized_or_compressed_response_is_rejected(reached: HttpsServer) -> None:
    """SF-3: the size is limited while reading."""
    for path in ("/large", "/packed"):
        with pytest.raises(OutgoingRequestFailed):
            outgoing_http.get(reached.base_url + path, organization_id=OURS)
    assert (
        len(outgoing_http.get(f"{reached.base_url}/large", organization_id=OURS, max_bytes=70_000).body)
        == 70_000
    )


def test_body_of_a_response_to_a_post_does_not_matter(reached: HttpsServer) -> None:
    """A webhook was received if the status says so."""
    for path in ("/large", "/packed"):
        answer = outgoing_http.post(
            reached.base_url + path, organization_id=OURS, body=b"", content_type="application/json"
        )
        assert (answer.status, answer.body) == (200, b"")


def test_private_address_is_rejected_before_sending(
    reached: HttpsServer, context: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SF-2: localhost is allowed only on the configured port."""
    allowed = reaching(context.config["GATEHOUSE"], reached)
    monkeypatch.setitem(context.config, "GATEHOUSE", allowed)
    for url in (f"https://127.0.0.1:{reached.port}/", reached.base_url.replace("https", "http")):
        with pytest.raises(OutgoingRequestBlocked):
            outgoing_http.get(url, organization_id=OURS)
    with pytest.raises(OutgoingRequestFailed):
        outgoing_http.get("https://localhost:1024/", organization_id=OURS)
    assert reached.requests == []


def test_error_does_not_reveal_whether_a_name_resolves(
    context: Flask, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """SF-5: a name of the internal network, one that does not exist, and a public server that does not respond."""

    def resolve(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        if host == "nobody.example":
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        address = "10.0.0.1" if host == "intranet.example" else "93.184.215.14"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    def refuse(*_: object) -> None:
        raise ConnectionRefusedError("refused")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr("app.operations.store.outgoing_connections.connect", refuse)
    caplog.set_level("INFO", "gatehouse.outgoing")
    told = set()
    for host in ("intranet.example", "nobody.example", "public.example"):
        with pytest.raises(OutgoingRequestFailed) as refused:
            outgoing_http.get(f"https://{host}/", organization_id=OURS)
        told.add((type(refused.value), refused.value.code, refused.value.description))
        with pytest.raises(InvalidInput) as invalid:
            fetch_sector_document(OURS, f"https://{host}/")
        told.add(("sector", str([(one.code, one.message) for one in invalid.value.errors])))
    assert len(told) == 2
    causes = [record.getMessage() for record in caplog.records]
    assert "public internet" in causes[0] and "could not be resolved" in causes[2] and "refused" in causes[4]


def test_checked_address_is_used_without_second_lookup(
    reached: HttpsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SF-2: DNS rebinding. A second look-up, which does not happen, would return another address."""
    asked = []
    real = socket.getaddrinfo

    def rebinding(host: str, *arguments: object, **named: object) -> object:
        asked.append(host)
        return real("127.0.0.1" if len(asked) == 1 else host, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    outgoing_http.get(f"{reached.base_url}/", organization_id=OURS)
    assert [host for host in asked if host != "127.0.0.1"] == ["localhost"]


def test_certificate_must_match_the_name_and_a_trusted_authority(
    context: Flask, server: HttpsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SF-2."""
    with https_server(answer, name="other.example") as other:
        monkeypatch.setitem(context.config, "GATEHOUSE", reaching(context.config["GATEHOUSE"], other))
        with pytest.raises(OutgoingRequestFailed):
            outgoing_http.get(f"{other.base_url}/", organization_id=OURS)
        assert other.requests == []
    system = Path("/etc/ssl/certs/ca-certificates.crt")
    plain = reaching(context.config["GATEHOUSE"], server)
    object.__setattr__(plain, "outgoing_ca_bundle", system if system.exists() else None)
    monkeypatch.setitem(context.config, "GATEHOUSE", plain)
    with pytest.raises(OutgoingRequestFailed):
        outgoing_http.get(f"{server.base_url}/", organization_id=OURS)


def test_environment_proxy_is_ignored(reached: HttpsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """SF-2."""
    for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert outgoing_http.get(f"{reached.base_url}/", organization_id=OURS).status == 200


def test_request_inside_a_transaction_raises(reached: HttpsServer) -> None:
    """SF-4."""

    @transaction
    def unit() -> None:
        outgoing_http.get(f"{reached.base_url}/", organization_id=OURS)

    with pytest.raises(RuntimeError):
        unit()
    assert reached.requests == []


@pytest.mark.parametrize(
    "start",
    [b"", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"],
    ids=["silence", "headers", "body"],
)
@pytest.mark.slow
def test_slow_response_is_aborted_at_the_deadline(
    context: Flask, monkeypatch: pytest.MonkeyPatch, start: bytes
) -> None:
    """SF-3: the deadline is for the whole response and is not extended by each byte."""
    monkeypatch.setattr(outgoing_http, "TOTAL_SECONDS", 0.6)
    end = threading.Event()

    def drip() -> Iterator[bytes]:
        yield start
        while not end.wait(0.05):
            yield b"x" if start else b""

    with https_server(lambda _: Response(raw=drip())) as slow:
        monkeypatch.setitem(context.config, "GATEHOUSE", reaching(context.config["GATEHOUSE"], slow))
        begun = time.monotonic()
        with pytest.raises(OutgoingRequestFailed):
            outgoing_http.get(f"{slow.base_url}/", organization_id=OURS)
        assert 0.4 < time.monotonic() - begun < 8
        if start.endswith(b"\r\n\r\n"):  # A webhook was received, although its response never ends.
            url, sent = f"{slow.base_url}/", {"body": b"", "content_type": "application/json"}
            assert outgoing_http.post(url, organization_id=OURS, **sent).status == 200
        end.set()


def test_requests_beyond_the_limit_are_refused(context: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    """SF-4: at most two threads wait for one slow host."""
    end, inside = threading.Event(), threading.Semaphore(0)

    def slow(request: Request) -> Response:
        inside.release()
        end.wait(20)
        return Response()

    with https_server(slow) as host:
        monkeypatch.setitem(context.config, "GATEHOUSE", reaching(context.config["GATEHOUSE"], host))

        def fetch() -> None:
            with context.app_context():
                outgoing_http.get(f"{host.base_url}/", organization_id=OURS)

        threads = [threading.Thread(target=fetch) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert inside.acquire(timeout=20)
        begun = time.monotonic()
        with pytest.raises(OutgoingRequestFailed):
            outgoing_http.get(f"{host.base_url}/", organization_id=OURS)
        assert time.monotonic() - begun < 5
        end.set()
        for thread in threads:
            thread.join()
        assert outgoing_http.get(f"{host.base_url}/", organization_id=OURS).status == 200, (
            "the slots are free again"
        )


def test_hanging_name_lookup_does_not_block_the_caller(
    context: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SF-4: the system's resolver has no deadline, but the caller does."""
    end = threading.Event()
    monkeypatch.setattr(outgoing_http, "TOTAL_SECONDS", 0.3)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: end.wait(20) and [])
    begun = time.monotonic()
    with pytest.raises(OutgoingRequestFailed):
        outgoing_http.get("https://rp.example/", organization_id=OURS)
    assert time.monotonic() - begun < 10
    end.set()


def test_name_lookup_that_cannot_start_frees_its_slot(
    context: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    wait_until(lambda: outgoing_http._lookup_slots.count_taken() == 0, "the look-ups of other tests end")
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", fail)
        for _ in range(20):
            with pytest.raises(RuntimeError):
                outgoing_http.get("https://rp.example/", organization_id=OURS)
    assert outgoing_http._lookup_slots.count_taken() == 0


def test_hanging_name_lookups_of_one_organization_do_not_block_another(
    context: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P2: a lookup goes on for long after the request that began it has failed."""
    end, connected = threading.Event(), []

    def resolve(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        if host.startswith("hanging"):
            end.wait(20)
            return []
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.215.14", port))]

    def connect(target: Target, *_: object) -> None:
        connected.append(target.host)
        raise ConnectionRefusedError("refused")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr("app.operations.store.outgoing_connections.connect", connect)
    with monkeypatch.context() as impatient:
        impatient.setattr(outgoing_http, "TOTAL_SECONDS", 0.01)
        for number in range(20):
            with pytest.raises(OutgoingRequestFailed):
                outgoing_http.get(f"https://hanging{number}.example/", organization_id=OURS)
    for organization_id in (OURS, THEIRS):
        with pytest.raises(OutgoingRequestFailed):
            outgoing_http.get("https://working.example/", organization_id=organization_id)
    assert connected == ["working.example"], "only the other organization has a slot"
    end.set()
