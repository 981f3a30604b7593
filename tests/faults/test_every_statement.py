"""The database is lost before and after each statement of a valid request to each route.

The response is what it would have been, or 503 with Retry-After. After a success what the request writes is stored
once; after a 503 nothing is stored, or all of it: the reply to the commit was lost. Other responses do not occur.

Each request is tried with one of its losses, or with as many as ``GATEHOUSE_LOSSES`` says: 1000 are all of them.
``--db mariadb`` and ``--db sqlite`` run all parts on that engine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from urllib.parse import urlsplit
from zlib import crc32

import pytest
from flask import Flask
from werkzeug.test import TestResponse

from app.fast_path import compiled_query
from app.operations.organizations.setup import issue_setup_token
from app.operations.store import transactions
from app.rules.errors import Unavailable
from tests.factories import PASSWORD
from tests.support.applications import forget
from tests.support.cut_connections import Cuts, Loss, cuttable
from tests.support.databases import Database
from tests.support.request_world import SAME_ORIGIN, ValidRequest
from tests.support.scim_requests import ALWAYS_REFUSED
from tests.support.stored_state import Change, StateKeeper, change_between
from tests.support.valid_requests import Requests

pytestmark = pytest.mark.either
LOSSES = int(os.environ.get("GATEHOUSE_LOSSES", "1"))
SECONDS = 900 if LOSSES == 1 else 7200
# What is written in transactions of its own, before or after that of the operation: counters, notes of uses, what was
# used up, and the parts of an uploaded file.
BESIDE = {"attempts", "credential_uses", "failed_requests", "used_identifiers", "user_import_parts"}
USED = {
    "first_used_at",
    "last_used_at",
    "last_used_address",
    "last_seen_at",
    "pkce_used_at",
    "pkce_omitted_at",
}
UNCONFIRMED = {"uploading", b"uploading"}
# The blueprints of each part; all others are protocols.
PARTS = {
    "management": {"api", "api_v1_only"},
    "portal": {"portal"},
    "account": {"account", "provider_logout"},
    "protocol": set(),
    "provisioning": {"scim"},
}
ONCE = {"api_v1": "api", "organization_oauth": "oauth"}
"""Blueprints whose views are those of another one."""
# The instance is set up in a test of its own.
SETUP = {("portal.setup_form", "GET"), ("portal.setup_submit", "POST"), ("portal.setup_done", "GET")}


def is_success(answer: TestResponse) -> bool:
    """Return whether the request did what it asks for."""
    return answer.status_code < 400 and "error=temporarily_unavailable" not in (answer.location or "")


def routes(app: Flask, part: str) -> set[tuple[str, str]]:
    """Return the endpoint and the method of each view of the part."""
    known: set[str] = set().union(*PARTS.values())
    return (
        {
            (endpoint, method)
            for rule in app.url_map.iter_rules()
            for endpoint in (_once(rule.endpoint),)
            for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
            if (name := endpoint.partition(".")[0]) in PARTS[part]
            or (part == "protocol" and name not in known)
        }
        - SETUP
        - ALWAYS_REFUSED
    )


def route_of(app: Flask, request: ValidRequest) -> tuple[str, str]:
    """Return the endpoint and the method of the request's view."""
    endpoint, _ = app.url_map.bind("localhost").match(urlsplit(request.path).path, request.method)
    return _once(endpoint), request.method


def _once(endpoint: str) -> str:
    blueprint, dot, name = endpoint.partition(".")
    return f"{ONCE.get(blueprint, blueprint)}{dot}{name}"


class Trial:
    """One request, repeated from the same state of the database."""

    def __init__(self, app: Flask, keeper: StateKeeper, cuts: Cuts, request: ValidRequest) -> None:
        self.app, self.keeper, self.cuts, self.request = app, keeper, cuts, request
        self.before = keeper.read()
        self.expected, self.change = self.send()
        self.statements = cuts.sent

    def send(
        self, number: int = -1, loss: Loss | None = None, *, again: bool = False
    ) -> tuple[TestResponse, Change]:
        """Send the request, return the response and what it has changed, and put that back.

        ``again`` sends it once more when the database is there again, with the same Idempotency-Key.
        """
        forget(self.app)
        self.cuts.start(number, loss)
        answer = self.request.send(self.app)
        # A download that has begun can only be broken off.
        with suppress(Unavailable) if answer.is_streamed else nullcontext():
            answer.get_data()
        answer.close()
        self.cuts.stop()
        if again:
            answer = self.request.send(self.app)
        after = self.keeper.put_back()
        if after is self.before:
            return answer, {}
        # An upload that was not confirmed is shown nowhere and expires.
        uploads = after["user_imports"]
        after["user_imports"] = {key: row for key, row in uploads.items() if not UNCONFIRMED & set(row)}
        return answer, change_between(self.before, after, without=BESIDE, columns=USED)

    def fault(self, number: int, loss: Loss) -> str | None:
        """Return what is wrong with the response if the database is lost at this statement."""
        answer, change = self.send(number, loss)
        status, name = answer.status_code, f"{self.request.method} {self.request.name}"
        where = f"{name}: {status} with loss {loss.name} at {number}: {self.statements[number][:120]!r}"
        if status == 503:
            if int(answer.headers.get("Retry-After", 0)) <= 0:
                return f"{where}: no Retry-After"
        elif not is_success(answer) and is_success(self.expected):
            if "temporarily_unavailable" not in (answer.location or ""):
                return f"{where}: expected {self.expected.status_code}: {answer.text[:300]}"
        elif status != self.expected.status_code:
            return f"{where}: expected {self.expected.status_code}"
        if change != self.change and (is_success(answer) or change):
            return f"{where}: changed {change}, expected {self.change}"
        if status == 503 and self.expected.status_code == 201 and "Idempotency-Key" in self.request.headers:
            answer, change = self.send(number, loss, again=True)
            if (answer.status_code, change) != (201, self.change):
                return f"{where}: repeated with {answer.status_code}: {change}, expected {self.change}"
        return None


def losses(trial: Trial, engine: str) -> Iterator[tuple[int, Loss]]:
    """Return the statements of the request and the ways to lose them."""
    # SQLite has no replies that could be lost.
    ways = tuple(Loss) if engine == "mariadb" else (Loss.BEFORE, Loss.FOR_GOOD)
    every = [(number, way) for number in range(len(trial.statements)) for way in ways]
    # Evenly, from a place that the name decides.
    step = max(1, len(every) // LOSSES)
    first = crc32(f"{trial.request.method} {trial.request.name}".encode()) % step
    yield from every[first::step][:LOSSES] if len(every) > LOSSES else every


class Trials:
    """The trials of many requests, and what was wrong."""

    def __init__(self, app: Flask, database: Database, cuts: Cuts) -> None:
        self.app, self.database, self.cuts = app, database, cuts
        self.keeper = StateKeeper(database, cuts)
        self.count = 0
        self.faults: list[str] = []
        self.sent: set[tuple[str, str]] = set()

    def run(self, request: ValidRequest) -> None:
        """Send the request as it is, and with the losses that are its turn."""
        trial = Trial(self.app, self.keeper, self.cuts, request)
        if is_success(trial.expected):
            self.sent.add(route_of(self.app, request))
        for number, loss in losses(trial, self.database.engine):
            self.count += 1
            fault = trial.fault(number, loss)
            self.faults += [fault] if fault is not None else []
        forget(self.app)


@pytest.fixture
def trials(app: Flask, database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trials]:
    """Trials in an application that gives up soon."""
    monkeypatch.setitem(app.config, "WTF_CSRF_ENABLED", False)
    monkeypatch.setitem(app.config, "PROPAGATE_EXCEPTIONS", False)
    for module in (transactions, compiled_query):
        monkeypatch.setattr(module, "DEADLINE_SECONDS", 0.05)
    with cuttable(app) as cuts:
        yield Trials(app, database, cuts)


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("part", PARTS)
def test_lost_database_is_answered_by_503_or_not_noticed(
    requests: Requests, trials: Trials, part: str
) -> None:
    for request in getattr(requests, part)():
        trials.run(request)
    assert routes(trials.app, part) - trials.sent == set(), "routes without a request that succeeds"
    assert not trials.faults, f"{len(trials.faults)} of {trials.count}:\n" + "\n".join(trials.faults)


@pytest.mark.timeout(SECONDS)
def test_lost_database_during_setup_is_answered_by_503_or_not_noticed(trials: Trials) -> None:
    with trials.app.app_context():
        token = issue_setup_token()
    trials.run(ValidRequest("portal.setup_form", "GET", f"/setup?token={token}"))
    form = {
        "token": token,
        "email": "rosa@gatehouse.example",
        "name": "Rosa",
        "password": PASSWORD,
        "password_again": PASSWORD,
        "organization_name": "Acme",
        "organization_id": "",
    }
    trials.run(ValidRequest("portal.setup_submit", "POST", "/setup", headers=SAME_ORIGIN, form=form))
    trials.run(ValidRequest("portal.setup_done", "GET", "/setup/done"))
    assert trials.sent == SETUP
    assert not trials.faults, f"{len(trials.faults)} of {trials.count}:\n" + "\n".join(trials.faults)
