"""The backlog of a run shows whether the janitor deletes what it has to, and nothing else."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from flask import Flask
from sqlalchemy import delete

from app.database import ACROSS
from app.extensions import db
from app.models.token import AccessToken
from app.operations.maintenance.janitor import purge_expired
from app.operations.store import clock
from app.operations.store.transactions import transaction
from app.rules.actor import Actor
from tests.factories import Factory
from tests.faults import expired_tokens
from tests.faults.expired_tokens import ExpiredTokens

BACKLOG = 700


@pytest.fixture
def expired(make: Factory, monkeypatch: pytest.MonkeyPatch) -> ExpiredTokens:
    monkeypatch.setattr(expired_tokens, "BACKLOG", BACKLOG)
    monkeypatch.setattr(expired_tokens, "_PATIENCE_SECONDS", 0.1)
    expired = ExpiredTokens(make)
    expired.fill()
    return expired


def purge() -> None:
    assert purge_expired(Actor.system("", "tests"), pause=0) is not None


def test_janitor_that_works_is_no_problem(context: Flask, expired: ExpiredTokens) -> None:
    purge()
    assert (expired.deleted, expired.find_problems()) == (BACKLOG, [])
    expired.fill()
    purge()
    assert (expired.deleted, expired.find_problems()) == (2 * BACKLOG, [])


def test_janitor_that_does_nothing_is_found(context: Flask, expired: ExpiredTokens) -> None:
    assert expired.find_problems() == ["a janitor that deletes expired tokens: not within 0.1 s"]


def test_janitor_that_deletes_too_early_is_found(context: Flask, expired: ExpiredTokens) -> None:
    purge()
    _delete_all(clock.now() - timedelta(hours=1))
    assert expired.find_problems() == ["0 tokens are left of 500 that expired less than a day ago"]


@transaction
def _delete_all(before: datetime) -> None:
    db.session.execute(delete(AccessToken).where(AccessToken.expires_at < before), execution_options=ACROSS)
