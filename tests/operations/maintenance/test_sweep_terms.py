"""Retention of rows that unauthenticated requests create."""

from __future__ import annotations

from datetime import timedelta

from app.models.grant import AuthorizationRequest
from app.models.token import PushedRequest
from app.operations.authorization import authorization_requests, pushed_requests
from app.operations.maintenance.purge_rules import PURGE_RULES


def kept(table: str) -> timedelta:
    return next(rule.retention for rule in PURGE_RULES if rule.table.name == table)


def test_pushed_requests_are_retained_until_they_cannot_be_completed() -> None:
    """OI-4: anyone can push ten thousand requests of twelve kilobytes per minute for a public client."""
    longest = authorization_requests.REQUEST_LIFETIME + pushed_requests.REQUEST_LIFETIME
    assert longest < kept(PushedRequest.__tablename__) <= timedelta(hours=1)


def test_authorization_requests_are_deleted_at_their_expiry() -> None:
    assert kept(AuthorizationRequest.__tablename__) == timedelta()
