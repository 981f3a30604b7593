"""Concurrent management calls: one effect where one is promised, and no 5xx."""

from __future__ import annotations

import http.client
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest
from flask import Flask

from app.operations.clients import clients
from tests.factories import Factory, bearer_header
from tests.support.concurrent_requests import Post, send_concurrently
from tests.support.servers import LiveServer

pytestmark = [pytest.mark.mariadb, pytest.mark.live, pytest.mark.race]
GOOD = {"name": "Orchard", "redirect_uris": ["https://orchard.example/callback"], "scopes": ["openid"]}
CROWD = 60


def test_idempotency_key_registers_one_client(live_server: LiveServer, live_make: Factory) -> None:
    """JS-9: all callers get the same client; only the one who created it gets the secret."""
    organization = live_make.organization()
    headers = {**bearer_header(live_make.bearer(organization)), "Idempotency-Key": "order-17"}
    replies = send_concurrently(live_server.url, [Post("/clients", json=GOOD, headers=headers)] * CROWD)
    assert Counter(reply.status for reply in replies) == {201: CROWD}
    assert len({reply.json["data"]["client_id"] for reply in replies}) == 1
    assert sum("client_secret" in reply.json["data"] for reply in replies) == 1
    [(count,)] = live_server.database.query(
        "SELECT COUNT(*) FROM clients WHERE organization_id = %s AND name = 'Orchard'",
        organization.id.encode(),
    )
    assert count == 1


def test_idempotency_key_with_different_bodies_has_one_effect(
    live_server: LiveServer, live_make: Factory
) -> None:
    headers = {**bearer_header(live_make.bearer(live_make.organization())), "Idempotency-Key": "k"}
    posts = [Post("/clients", json={**GOOD, "name": f"App {n}"}, headers=headers) for n in range(CROWD)]
    replies = send_concurrently(live_server.url, posts)
    assert Counter(reply.status for reply in replies) == {201: 1, 409: CROWD - 1}
    assert {reply.json["error"] for reply in replies if reply.status == 409} == {"idempotency_key_reused"}


def test_concurrent_secret_creation_respects_the_limit(live_server: LiveServer, live_make: Factory) -> None:
    organization = live_make.organization()
    client = live_make.client(organization)
    headers = bearer_header(live_make.bearer(organization))
    path = f"/clients/{client.client_id}/credentials"
    replies = send_concurrently(live_server.url, [Post(path, json={}, headers=headers)] * 20)
    statuses = Counter(reply.status for reply in replies)
    assert statuses[201] == 4
    assert statuses == {201: 4, 409: 16}
    [(live,)] = live_server.database.query(
        "SELECT COUNT(*) FROM client_credentials WHERE client_id = %s AND revoked_at IS NULL",
        client.registered.client.id.bytes,
    )
    assert live == 5


def test_chunked_body_over_the_limit_is_rejected(live_server: LiveServer, live_make: Factory) -> None:
    """JS-2."""
    headers = bearer_header(live_make.bearer(live_make.organization()))
    for size, status in ((60_000, 400), (65_536 - 12, 400), (65_537 - 12, 413), (200_000, 413)):
        connection = http.client.HTTPConnection(urlsplit(live_server.url).netloc, timeout=60)
        whole = b'{"nmae": "' + b"x" * size + b'"}'
        pieces = (whole[start : start + 1000] for start in range(0, len(whole), 1000))
        connection.request(
            "POST",
            "/clients",
            pieces,
            {**headers, "Content-Type": "application/json"},
            encode_chunked=True,
        )
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        assert answer.status == status, body


def test_concurrent_updates_of_different_fields_are_all_kept(app: Flask, make: Factory) -> None:
    """An update reads the client, and writes only if it is unchanged since."""
    organization = make.organization()
    client_id = make.client(organization).client_id
    admin = make.actor(organization)
    changes = {
        "description": "New",
        "contacts": ["dev@acme.example"],
        "client_uri": "https://acme.example",
        "policy_uri": "https://acme.example/privacy",
        "tos_uri": "https://acme.example/terms",
        "metadata": {"team": "checkout"},
    }
    gate = threading.Barrier(len(changes))

    def change(field: str) -> None:
        with app.app_context():
            gate.wait(10)
            clients.update_client(admin, client_id, {field: changes[field]})

    for _ in range(5):
        with app.app_context():
            clients.update_client(admin, client_id, dict.fromkeys(changes))
        with ThreadPoolExecutor(len(changes)) as pool:
            list(pool.map(change, changes))
        with app.app_context():
            kept = clients.get_client(admin, client_id)
        assert {field: getattr(kept, field) for field in changes} == {
            **changes,
            "contacts": ("dev@acme.example",),
        }
