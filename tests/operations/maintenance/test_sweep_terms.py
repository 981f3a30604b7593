"""How long what strangers can have stored stays after its end."""

from __future__ import annotations

from datetime import timedelta

from app.models.grant import AuthorizationRequest
from app.models.token import PushedRequest
from app.operations.authorization import authorization_requests, pushed_requests
from app.operations.maintenance.janitor import PURGE_RULES


def kept(table: str) -> timedelta:
    return next(rule.retention for rule in PURGE_RULES if rule.table.name == table)


def test_a_pushed_request_stays_as_long_as_it_can_be_answered_and_little_longer() -> None:
    """OI-4: anybody who names a public client can push ten thousand of them a minute, of twelve kilobytes each."""
    longest = authorization_requests.LIFE + pushed_requests.LIFE
    assert longest < kept(PushedRequest.__tablename__) <= timedelta(hours=1)


def test_an_authorization_request_goes_with_its_end() -> None:
    assert kept(AuthorizationRequest.__tablename__) == timedelta()
