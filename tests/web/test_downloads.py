"""Downloads that are written while they are sent: how many may be under way."""

from __future__ import annotations

import gc

import pytest
from flask import Flask
from flask.testing import FlaskClient

from app.rules.errors import TooManyRequests
from app.web import downloads
from tests.factories import Factory, bearer_header


def test_download_keeps_its_slot_until_it_was_sent(app: Flask) -> None:
    """P2: a slow reader keeps a thread of the server, which has thirty."""
    # Other tests leave responses of exports unread.
    gc.collect()
    with app.test_request_context():
        under_way = [
            downloads.download("acme", iter("abc"), "text/plain", "letters.txt")
            for _ in range(downloads.SLOTS.per_organization)
        ]
        with pytest.raises(TooManyRequests):
            downloads.download("acme", iter("abc"), "text/plain", "letters.txt")
        for response in under_way:
            response.close()
    assert downloads.SLOTS.count_taken() == 0


@pytest.mark.slow
def test_download_that_is_never_sent_frees_its_slot(app: Flask) -> None:
    """Such as one whose response was replaced, because the database was lost after the view."""
    with app.test_request_context():
        for _ in range(downloads.SLOTS.slots + 1):
            assert downloads.download("acme", iter("abc"), "text/plain", "letters.txt").status_code == 200
            # Only what is new: all that a long run has loaded takes a second.
            gc.collect(1)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_finished_export_is_not_under_way(http: FlaskClient, make: Factory, method: str) -> None:
    headers = bearer_header(make.bearer(make.organization(), "audit:read"))
    for _ in range(downloads.SLOTS.slots + 1):
        with http.open("/audit-events/export", method=method, headers=headers) as answer:
            assert answer.status_code == 200, answer.text
