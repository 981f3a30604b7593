"""Downloads that are written while they are sent: how many may be under way."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from app.rules.errors import TooManyRequests
from app.web import downloads
from tests.factories import Factory, bearer_header


def begin(organization_id: str) -> Any:
    return downloads.download(organization_id, iter("abc"), "text/plain", "letters.txt")


def test_slow_readers_leave_room_for_other_organizations(app: Flask) -> None:
    """P2: each keeps a thread of the server, which has thirty."""
    with app.test_request_context():
        under_way = [begin("acme") for _ in range(downloads.MAX_DOWNLOADS_PER_ORGANIZATION)]
        with pytest.raises(TooManyRequests):
            begin("acme")
        under_way.append(begin("organization 0"))
        with pytest.raises(TooManyRequests):  # Three organizations must not hold all.
            begin("organization 0")
        under_way += [begin(f"organization {number}") for number in range(1, 4)]
        with pytest.raises(TooManyRequests):
            begin("globex")
        under_way.pop().close()
        begin("globex").close()
        for response in under_way:
            response.close()
    assert downloads._under_way.total() == 0


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_finished_export_is_not_under_way(http: FlaskClient, make: Factory, method: str) -> None:
    headers = bearer_header(make.bearer(make.organization(), "audit:read"))
    for _ in range(downloads.MAX_DOWNLOADS + 1):
        with http.open("/audit-events/export", method=method, headers=headers) as answer:
            assert answer.status_code == 200, answer.text
