"""Transactions lock rows in one order (data-model.md): found without load, from one request of each kind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from flask import Flask

from tests.factories import bearer_header
from tests.support.applications import forget
from tests.support.cut_connections import cuttable
from tests.support.databases import Database
from tests.support.lock_trace import Lock, LockTrace, Transaction, find_cycles, find_upgrades
from tests.support.request_world import ValidRequest
from tests.support.stored_state import StateKeeper
from tests.support.valid_requests import Requests

pytestmark = pytest.mark.mariadb
# The first table is locked before the second, although others do the opposite, with the reason.
ACCEPTED = {
    (
        "authorization_codes",
        "users",
    ): "a code is redeemed while its user is changed: the order would cost a query",
}


def changes(requests: Requests) -> Iterator[ValidRequest]:
    """Changes of clients and APIs that concern each other."""
    slug, app = requests.organization.slug, requests.app
    client, api = (f"/api/v1/{name}/{requests.ids[key]}" for name, key in PATHS.items())
    both = {"scopes": [f"{slug}:read", f"{slug}/plain", "brand:new"], "resources": ["urn:api"]}
    both["grant_types"] = ["authorization_code", "client_credentials"]

    def put(name: str, path: str, json: object = None, method: str = "PUT") -> ValidRequest:
        return ValidRequest(name, method, path, headers=bearer_header(requests.world.token), json=json)

    new = {**both, "name": "New", "type": "machine", "grant_types": ["client_credentials"]}
    yield put("register a client of an API", "/api/v1/clients", new, "POST")
    yield put("add an API to a client", client, both)
    assert put("", client, both).send(app).status_code == 200
    scopes = [{"name": "other:read"}, {"name": f"{slug}/plain"}]
    yield put("change an API's scopes", f"{api}?confirm=true", {"scopes": scopes})
    yield put("delete an API in use", f"{api}?confirm=true", method="DELETE")
    yield put("block a client", client, {"approval": "blocked"})
    yield put("remove a client's roles", client, {"app_roles": []})


PATHS = {"clients": "clientId", "resources": "resourceId"}


@pytest.mark.timeout(900)
def test_requests_lock_rows_in_one_order(app: Flask, database: Database, requests: Requests) -> None:
    database.query("SET GLOBAL innodb_status_output_locks = ON")
    with closing(database.connect()) as connection, cuttable(app, LockTrace(connection.cursor())) as trace:
        assert isinstance(trace, LockTrace)
        keeper = StateKeeper(database, trace)
        for part in (
            requests.management,
            requests.portal,
            requests.account,
            requests.protocol,
            requests.provisioning,
            None,
        ):
            for request in part() if part else changes(requests):
                keeper.read()
                trace.request = request.name
                answer = request.send(app)
                answer.get_data()
                answer.close()
                trace.request = ""
                assert answer.status_code < 400 or part, f"{request.name}: {answer.text}"
                keeper.put_back()
                forget(app)
    database.query("SET GLOBAL innodb_status_output_locks = OFF")
    assert find_upgrades(trace.transactions) == []
    found = find_cycles(trace.transactions, ACCEPTED)
    assert not found, "\n".join(f"{tables}: {who}" for tables, who in found.items())
    needed = [pair for pair in ACCEPTED if find_cycles(trace.transactions, ACCEPTED.keys() - {pair})]
    assert needed == list(ACCEPTED), "accepted, but not found any more"


def transaction(name: str, *locks: str) -> Transaction:
    """Return a transaction with locks such as ``clients X``."""
    return Transaction(name, [Lock(*lock.split(), row=("1",)) for lock in locks])


def test_lock_that_becomes_exclusive_is_found() -> None:
    assert find_upgrades([transaction("a", "clients S", "users X", "clients X")]) == ["a: clients"]
    assert find_upgrades([transaction("a", "clients X", "clients S", "users X")]) == []


OPPOSITE = [("clients X", "users X"), ("users X", "clients X")]


@pytest.mark.parametrize(
    ("orders", "are_found"),
    [
        (OPPOSITE, True),
        ([OPPOSITE[0], OPPOSITE[0]], False),
        # Shared locks do not wait for each other.
        ([("clients S", "users X"), ("users X", "clients S")], False),
        ([("clients X", "users X"), ("users S", "clients S")], True),
        # Kept apart by a lock on what both rows belong to, and not by one on something else.
        ([("organizations X", *order) for order in OPPOSITE], False),
        ([("webhooks X", *order) for order in OPPOSITE], True),
    ],
)
def test_opposite_orders_are_found(orders: list[tuple[str, ...]], are_found: bool) -> None:
    found = find_cycles([transaction(str(number), *order) for number, order in enumerate(orders)])
    assert bool(found) == are_found
