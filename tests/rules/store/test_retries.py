"""Retry delays: they double up to an hour and vary randomly."""

from __future__ import annotations

from app.rules.store.outgoing_http import retry_delay
from tests.support.cases import each


@each(("attempts", "seconds"), [(0, 10), (1, 10), (2, 20), (5, 160), (9, 2560), (10, 3600), (10_000, 3600)])
def test_retry_delay_doubles_up_to_an_hour(attempts: int, seconds: int) -> None:
    assert retry_delay(attempts, 0.5).total_seconds() == seconds


def test_retry_delay_varies_by_a_quarter() -> None:
    assert retry_delay(1, 0).total_seconds() == 7.5
    assert retry_delay(1, 1).total_seconds() == 12.5
