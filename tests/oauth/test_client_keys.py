"""Keys at a client's jwks_uri: fetched only when needed, and a failing URL affects no other client."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import select, update
from werkzeug.test import TestResponse

from app.extensions import db
from app.fast_path import cache_invalidation
from app.models.client import Client
from app.operations.audit.failed_requests import list_failed_requests
from app.operations.clients import client_authentication
from app.operations.store.transactions import transaction
from app.rules.actor import Actor
from app.uptime import uptime
from app.web.failed_requests import FailedRequests
from tests.factories import Factory, MadeClient
from tests.oauth.conftest import REDIRECT_URI, Flow, query_of
from tests.support.caches import clear_client_key_cache
from tests.support.https_server import HttpsServer, Request, Response, https_server, reaching
from tests.support.signer import Signer, new_key


class Publisher:
    """A client's server. Tests change what it returns."""

    def __init__(self, *signers: Signer) -> None:
        self.server: HttpsServer
        self.keys: list[Any] = [signer.jwk for signer in signers]
        self.status, self.headers, self.raw = 200, {"Content-Type": "application/jwk-set+json"}, b""
        self.seconds = 0.0

    def answer(self, request: Request) -> Response:
        """The response for every path."""
        time.sleep(self.seconds)
        return Response(self.status, self.raw or json.dumps({"keys": self.keys}).encode(), self.headers)

    @property
    def times_read(self) -> int:
        """Return the number of requests received."""
        return len(self.server.requests)


@pytest.fixture
def publisher(app: Flask, signer: Signer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Publisher]:
    clear_client_key_cache()
    made = Publisher(signer)
    with https_server(made.answer) as server:
        made.server = server
        monkeypatch.setitem(app.config, "GATEHOUSE", reaching(app.config["GATEHOUSE"], server))
        yield made
    clear_client_key_cache()


def publishes_at(app: Flask, client: MadeClient, uri: str) -> None:
    """Point the client's jwks_uri at the URL in the database; registration rejects the loopback interface."""

    @transaction
    def act() -> None:
        row = db.session.execute(select(Client).where(Client.id == client.registered.client.id)).scalar_one()
        document = {**row.document, "jwks": None, "jwks_uri": uri}
        db.session.execute(update(Client).where(Client.id == row.id).values(document=document))
        cache_invalidation.invalidate(row.organization_id)

    with app.app_context():
        act()


@pytest.fixture
def publishing(app: Flask, make: Factory, publisher: Publisher, signer: Signer) -> MadeClient:
    """A private_key_jwt client whose keys are at its publisher."""
    client = make.machine(make.organization(), "reports:read", **signer.registration)
    publishes_at(app, client, f"{publisher.server.base_url}/keys")
    return client


def authenticate(app: Flask, client: MadeClient, signer: Signer, **header: Any) -> TestResponse:
    fields = signer.fields(client.client_id, client.organization.issuer, header=header)
    return app.test_client().post("/oauth/token", data={"grant_type": "client_credentials"} | fields)


def test_keys_are_fetched_once_for_many_requests(
    app: Flask, publisher, publishing: MadeClient, signer
) -> None:
    assert [authenticate(app, publishing, signer).status_code for _ in range(5)] == [200] * 5
    assert publisher.times_read == 1
    assert publisher.server.requests[0].path == "/keys"


def test_unknown_kid_refetches_the_keys(
    app: Flask, publisher, publishing: MadeClient, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client can rotate without notice. The removed key is no longer accepted."""
    assert authenticate(app, publishing, signer).status_code == 200
    successor = Signer(key=new_key(), key_id="two")
    publisher.keys = [successor.jwk]
    monkeypatch.setattr(client_authentication, "RETRY_SECONDS", 0.0)
    assert authenticate(app, publishing, successor).status_code == 200
    assert authenticate(app, publishing, signer).status_code == 401


def test_unknown_kids_cannot_force_frequent_fetches(
    app: Flask, publisher, publishing: MadeClient, signer: Signer
) -> None:
    """SF-4: an unknown kid causes a fetch only now and then."""
    assert authenticate(app, publishing, signer).status_code == 200
    stranger = Signer(key=new_key())
    answers = [authenticate(app, publishing, stranger, kid=f"kid {number}") for number in range(5)]
    assert {answer.status_code for answer in answers} == {401}
    assert publisher.times_read == 1


def test_keys_are_refetched_after_minutes(
    app: Flask, publisher, publishing: MadeClient, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A removed key stops working even if no new key is used."""
    assert authenticate(app, publishing, signer).status_code == 200
    publisher.keys = [Signer(key=new_key()).jwk]
    monkeypatch.setattr(client_authentication, "CACHE_SECONDS", 0.0)
    assert authenticate(app, publishing, signer).status_code == 401


def test_keys_without_kid_and_unsupported_keys_are_skipped(
    app: Flask, publisher, publishing: MadeClient, signer: Signer
) -> None:
    nameless = {name: value for name, value in signer.jwk.items() if name != "kid"}
    publisher.keys = [
        7,
        {"kty": "oct", "k": "AAAA"},
        signer.jwk | {"use": "enc"},
        nameless | {"x5c": ["AAAA"]},
    ]
    publisher.keys[-1] = nameless
    assert authenticate(app, publishing, signer).status_code == 200


@pytest.mark.parametrize(
    "spoilt",
    [
        {"status": 500},
        {"status": 302, "headers": {"Location": "https://localhost/", "Content-Type": "application/json"}},
        {"raw": b"no json"},
        {"raw": b"[]"},
        {"raw": b'{"keys": 7, "keys": []}'},
        {"raw": b'{"keys": "' + b"x" * 70_000 + b'"}'},
        {"headers": {"Content-Type": "text/html"}},
    ],
    ids=str,
)
def test_failing_jwks_uri_is_a_temporary_error(
    app: Flask, publisher, publishing: MadeClient, signer: Signer, spoilt: dict[str, Any]
) -> None:
    """P5: never a 500, and the next request does not fetch again."""
    for name, value in spoilt.items():
        setattr(publisher, name, value)
    for _ in range(3):
        answer = authenticate(app, publishing, signer)
        assert (answer.status_code, answer.get_json()["error"]) == (503, "temporarily_unavailable")
        assert answer.headers["Retry-After"]
    assert publisher.times_read == 1


def test_forbidden_jwks_uri_is_not_fetched(app: Flask, make: Factory, publisher, signer: Signer) -> None:
    """SF-2."""
    client = make.machine(make.organization(), "reports:read", **signer.registration)
    for uri in (
        "https://169.254.169.254/keys",
        "https://localhost:1/keys",
        "https://no-such-host.invalid/keys",
    ):
        publishes_at(app, client, uri)
        assert authenticate(app, client, signer).status_code == 503
    assert publisher.times_read == 0


def test_cached_keys_are_used_during_an_outage(
    app: Flask, publisher, publishing: MadeClient, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F22: for an hour at most."""
    assert authenticate(app, publishing, signer).status_code == 200
    publisher.status = 500
    monkeypatch.setattr(client_authentication, "CACHE_SECONDS", 0.0)
    assert authenticate(app, publishing, signer).status_code == 200
    assert publisher.times_read == 2
    # Also if the machine was suspended.
    monkeypatch.setattr(client_authentication, "uptime", lambda: uptime() + 3601)
    assert authenticate(app, publishing, signer).status_code == 503
    publisher.status = 200
    monkeypatch.setattr(client_authentication, "RETRY_SECONDS", 0.0)
    assert authenticate(app, publishing, signer).status_code == 200


def test_concurrent_requests_share_one_fetch(
    app: Flask, publisher, publishing: MadeClient, signer: Signer
) -> None:
    """SF-4: a slow URL occupies one thread; the others wait briefly for its result."""
    publisher.seconds = 0.3
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: authenticate(app, publishing, signer).status_code, range(6)))
    assert answers == [200] * 6
    assert publisher.times_read == 1


def test_request_objects_use_fetched_keys(app: Flask, flow: Flow, publisher, signer: Signer) -> None:
    client = flow.other_client(trust="first_party", redirect_uris=[REDIRECT_URI])
    publishes_at(app, client.client, f"{publisher.server.base_url}/keys")
    own = {"client_id": client.client.client_id}

    def bring() -> TestResponse:
        signed = signer.request_object(client.parameters(), client.issuer)
        beside = {"request": signed, "redirect_uri": REDIRECT_URI, "state": "outer"}
        return flow.http.get("/oauth/authorize", query_string=own | beside)

    assert "code" in query_of(bring())
    clear_client_key_cache()
    publisher.status = 500
    query = query_of(bring())
    assert (query["error"], query["state"]) == ("temporarily_unavailable", "outer")
    pushed = {"request": signer.request_object(client.parameters(), client.issuer)}
    answer = flow.http.post("/oauth/par", data=pushed, headers=client.client.basic)
    assert answer.get_json()["error"] == "temporarily_unavailable"


def test_unreadable_keys_appear_in_the_failed_request_log(
    app: Flask, publisher, publishing: MadeClient, signer
) -> None:
    publisher.status = 500
    assert authenticate(app, publishing, signer).status_code == 503
    waiting: FailedRequests = app.extensions["failed_requests"]
    with app.app_context():
        waiting.write_waiting()
        [entry] = list_failed_requests(Actor.system(publishing.organization.id)).items
    assert (entry.status, entry.cause) == (503, "client_keys_unavailable")
    assert entry.parameters["client_assertion"] == "[a JWT, removed]"
