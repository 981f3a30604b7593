"""Concurrent definitions of APIs: identifiers and scopes stay unique, and there is no 5xx."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.factories import Factory, bearer_header
from tests.support.concurrent_requests import Post, send_concurrently
from tests.support.servers import LiveServer

pytestmark = [pytest.mark.mariadb, pytest.mark.live, pytest.mark.race]
CROWD = 30


def test_identifier_and_scope_belong_to_one_resource(live_server: LiveServer, live_make: Factory) -> None:
    headers = bearer_header(live_make.bearer(live_make.organization()))
    same = {"identifier": "urn:api", "name": "API"}
    replies = send_concurrently(live_server.url, [Post("/resources", json=same, headers=headers)] * CROWD)
    assert Counter(reply.status for reply in replies) == {201: 1, 409: CROWD - 1}
    bodies = [
        {"identifier": f"urn:{number}", "name": f"API {number}", "scopes": [{"name": "orders:read"}]}
        for number in range(CROWD)
    ]
    replies = send_concurrently(
        live_server.url, [Post("/resources", json=body, headers=headers) for body in bodies]
    )
    statuses = Counter(reply.status for reply in replies)
    assert statuses[201] == 1
    assert set(statuses) <= {201, 400, 409}
