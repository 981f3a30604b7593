"""Concurrent management calls: one effect where one is promised, and no 5xx."""

from __future__ import annotations

import functools
import http.client
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from flask import Flask
from werkzeug.test import TestResponse

from app.operations.audit import webhooks
from app.operations.audit.webhooks import create_webhook
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.organizations.roles import create_role
from app.rules.actor import Actor
from app.rules.audit.webhooks import parse_overlap
from tests.factories import Factory, bearer_header
from tests.support.concurrent_requests import Post, send_concurrently
from tests.support.servers import LiveServer
from tests.support.threads import at_once

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


def _client(make: Factory, organization: OrganizationSnapshot, admin: Actor) -> str:
    return f"/clients/{make.client(organization).client_id}"


def _role(make: Factory, organization: OrganizationSnapshot, admin: Actor) -> str:
    create_role(admin, {"id": "support", "name": "Support", "permissions": []})
    return "/roles/support"


def _webhook(make: Factory, organization: OrganizationSnapshot, admin: Actor) -> str:
    sent = {"url": "https://hooks.example/all", "event_types": ["user.*"]}
    return f"/webhooks/{create_webhook(admin, sent).record.public_id}"


UPDATES: dict[str, tuple[Callable[[Factory, OrganizationSnapshot, Actor], str], list[dict[str, Any]]]] = {
    "client": (
        _client,
        [
            {"description": "New"},
            {"contacts": ["dev@acme.example"]},
            {"client_uri": "https://acme.example"},
            {"policy_uri": "https://acme.example/privacy"},
            {"metadata": {"team": "checkout"}},
        ],
    ),
    "role": (
        _role,
        [{"name": "Help desk"}, {"description": "Answers calls."}, {"permissions": ["users:read"]}],
    ),
    "scope": (
        lambda make, organization, admin: "/scopes/profile",
        [{"title": "Read your profile"}, {"description": "Name and picture"}],
    ),
    "settings": (
        lambda make, organization, admin: f"/organizations/{organization.slug}/settings",
        [
            {"branding": {"theme": "dark"}},
            {"branding": {"accent_color": "#112233"}},
            {"audit": {"log_retention_days": 7}},
            {"localization": {"default_locale": "de"}},
        ],
    ),
    "user": (
        lambda make, organization, admin: f"/users/{make.user(organization).public_id}",
        [{"name": "Grace Hopper"}, {"profile": {"nickname": "grace"}}, {"email": "grace@acme.example"}],
    ),
    "webhook": (_webhook, [{"description": "All of them"}, {"event_types": ["client.*"]}]),
}


class Changes:
    """Sends changes of one object at the same moment."""

    def __init__(self, app: Flask, make: Factory, kind: str) -> None:
        self.app = app
        organization = make.organization()
        prepare, self.changes = UPDATES[kind]
        self.headers = bearer_header(make.bearer(organization))
        with app.app_context():
            self.path = prepare(make, organization, make.actor(organization))

    def read(self) -> TestResponse:
        """Read the object."""
        return self.app.test_client().get(self.path, headers=self.headers)

    def send(self, changes: list[dict[str, Any]], **headers: str) -> list[TestResponse]:
        """Send each change in a thread of its own."""
        gate = threading.Barrier(len(changes))

        def send(change: dict[str, Any]) -> TestResponse:
            gate.wait(10)
            return self.app.test_client().put(self.path, json=change, headers=self.headers | headers)

        with ThreadPoolExecutor(len(changes)) as pool:
            return list(pool.map(send, changes))


def _contains(found: Any, part: Any) -> bool:
    if isinstance(part, dict):
        return all(_contains(found[key], value) for key, value in part.items())
    return bool(found == part)


@pytest.mark.parametrize("kind", UPDATES)
def test_concurrent_updates_of_different_fields_are_all_kept(app: Flask, make: Factory, kind: str) -> None:
    """An update reads the object, and writes only if it is unchanged since; otherwise it reads it again."""
    for _ in range(3):
        changes = Changes(app, make, kind)
        answers = changes.send(changes.changes)
        assert {answer.status_code for answer in answers} == {200}, [answer.text for answer in answers]
        assert all(_contains(changes.read().get_json()["data"], change) for change in changes.changes)


@pytest.mark.parametrize("kind", UPDATES)
def test_one_of_concurrent_updates_of_a_version_is_stored(app: Flask, make: Factory, kind: str) -> None:
    """RFC 9110 section 13.1.1."""
    for _ in range(3):
        changes = Changes(app, make, kind)
        # Two that change the same field, so that the second one would overwrite the first.
        values = [{"name": "First"}, {"name": "Second"}] if kind in {"role", "user"} else changes.changes[:2]
        answers = changes.send(values, **{"If-Match": changes.read().headers["ETag"]})
        assert sorted(answer.status_code for answer in answers) == [200, 412], [a.text for a in answers]


def test_only_one_of_concurrent_rotations_of_a_webhook_secret_succeeds(
    app: Flask, make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second one would drop the secret that receivers use."""
    # Both have read the webhook before one of them changes it.
    gate = threading.Barrier(2)

    def parse(sent: dict[str, Any]) -> timedelta:
        gate.wait(10)
        return parse_overlap(sent)

    monkeypatch.setattr(webhooks, "parse_overlap", parse)
    organization = make.organization()
    admin = make.actor(organization)
    with app.app_context():
        path = _webhook(make, organization, admin)
    rotate = functools.partial(webhooks.rotate_webhook_secret, admin, path.removeprefix("/webhooks/"), {})
    assert sorted(at_once(app, [rotate] * 2)) == ["Busy", "SignedWebhook"]
