"""The list of clients: order, search, filters, pages, and a constant number of queries."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask

from app.fast_path import compiled_query
from app.operations.clients import client_records
from app.operations.store.rows import PageRequest
from app.rules.actor import Actor
from app.rules.errors import Forbidden, InvalidInput
from tests.factories import Factory
from tests.support.cases import each

NAMES = ["apple", "Banana", "cherry", "Äpfel", "apple", "date", "elder_berry", "100% fig"]


@pytest.fixture
def admin(context: Flask, make: Factory) -> Actor:
    organization = make.organization()
    actor = make.actor(organization)
    for number, name in enumerate(NAMES):
        kind = "machine" if number % 2 else "web"
        make.client(
            organization,
            name=name,
            type=kind,
            scopes=[],
            redirect_uris=[] if kind == "machine" else ["https://a.example/cb"],
        )
    make.client(make.organization(), name="apple")
    return actor


def pages(actor: Actor, limit: int, **how) -> list[str]:
    names, after = [], None
    while True:
        page = client_records.list_clients(actor, PageRequest(limit, after), **how)
        assert len(page.items) <= limit
        names += [client.name for client in page.items]
        after = page.next_cursor_key
        if after is None:
            return names


@pytest.mark.both
@each("limit", [1, 3, 8])
@each("sort", ["name", "-name", "created_at", "-created_at"])
def test_pages_contain_each_client_once_in_order(admin: Actor, limit: int, sort: str) -> None:
    filters = {"sort": sort}
    page = client_records.list_clients(admin, PageRequest(100), filters=filters)
    whole = [client.name for client in page.items]
    assert pages(admin, limit, filters=filters) == whole
    assert sorted(whole) == sorted(NAMES)
    if sort.endswith("created_at"):
        assert whole == (NAMES if sort == "created_at" else NAMES[::-1])
    else:
        assert [name.casefold() for name in whole] == sorted(
            (name.casefold() for name in NAMES), key=str.encode, reverse=sort == "-name"
        )


@pytest.mark.both
@each(
    ("query", "found"),
    [
        ("apple", {"apple"}),
        ("BANANA", {"Banana"}),
        ("äpf", {"Äpfel"}),
        ("an", {"Banana"}),
        ("%", {"100% fig"}),
        ("_", {"elder_berry"}),
        ("nothing", set()),
        ("' OR 1=1 --", set()),
    ],
)
def test_search_matches_parts_of_names(admin: Actor, query: str, found: set[str]) -> None:
    assert {client.name for client in client_records.list_clients(admin, query=query).items} == found


def test_search_finds_a_client_id_only_within_the_organization(admin: Actor, make: Factory) -> None:
    [first, *_] = client_records.list_clients(admin).items
    assert client_records.list_clients(admin, query=first.client_id).items == (first,)
    foreign = make.client(make.organization()).client_id
    assert client_records.list_clients(admin, query=foreign).items == ()


def test_filters_match_exactly(admin: Actor) -> None:
    assert len(client_records.list_clients(admin, filters={"type": "machine"}).items) == 4
    assert client_records.list_clients(admin, filters={"status": "disabled"}).items == ()
    for wrong in ({"type": "server"}, {"colour": "red"}, {"sort": "colour"}):
        with pytest.raises(InvalidInput):
            client_records.list_clients(admin, filters=wrong)


@each("after", [("x",), ("a", "b", "c"), (), ("apple", "not-an-id")])
def test_cursor_of_another_list_is_rejected(admin: Actor, after: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInput):
        client_records.list_clients(admin, PageRequest(after=after))


def test_list_requires_permission(context: Flask, make: Factory) -> None:
    with pytest.raises(Forbidden):
        client_records.list_clients(make.actor(make.organization(), "clients:write"))


def test_list_takes_one_query_for_any_length(admin: Actor, monkeypatch: pytest.MonkeyPatch) -> None:
    statements: list[str] = []
    run = compiled_query._run

    def note(driver: Any, compiled: Any, *values: Any, **options: Any) -> Any:
        statements.append(compiled.sql)
        return run(driver, compiled, *values, **options)

    monkeypatch.setattr(compiled_query, "_run", note)
    for limit in (1, 100):
        statements.clear()
        client_records.list_clients(admin, PageRequest(limit))
        assert len(statements) == 1
