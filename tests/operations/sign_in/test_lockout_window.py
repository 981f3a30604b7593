"""The window in which failures count is an organization setting."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.operations.store import clock, rate_limits
from app.rules.sign_in.passwords import Lockout
from tests.factories import Factory

pytestmark = pytest.mark.usefixtures("context")


@pytest.mark.parametrize(("window_seconds", "waits"), [(120, False), (3600, True)])
def test_failures_count_only_within_the_window(
    make: Factory, monkeypatch: pytest.MonkeyPatch, window_seconds: int, waits: bool
) -> None:
    lockout = {
        "max_failures": 3,
        "window_seconds": window_seconds,
        "delay_seconds": 600,
        "max_delay_seconds": 900,
    }
    acme = make.organization(settings={"authentication": {"lockout": lockout}})
    limit = rate_limits.Limit(rate_limits.bucket_key("orchard"), Lockout.of(acme.settings))
    for _ in range(3):
        assert rate_limits.record_attempt(acme.id, limit).retry_after == 0
    assert rate_limits.record_attempt(acme.id, limit).retry_after > 0
    now = clock.now
    monkeypatch.setattr(clock, "now", lambda: now() + timedelta(minutes=5))
    assert (rate_limits.record_attempt(acme.id, limit).retry_after > 0) is waits
