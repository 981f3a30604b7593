"""Work that keeps a thread for long: one organization leaves room for others (P2)."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
from flask.testing import FlaskClient

from app.operations.store.slots import Slots
from app.operations.store.text_search import SEARCHES
from app.rules.errors import TooManyRequests
from tests.factories import Factory, bearer_header


def test_one_organization_leaves_slots_for_others() -> None:
    """TN-9, P2: an organization uses at most half of six slots, two for one host, and one if half are taken."""
    slots = Slots(6, 3, partial(TooManyRequests, "Too many.", retry_after=10), per_host=2)
    with ExitStack() as held:

        def take(*wanted: tuple[str, str]) -> None:
            for slot in wanted:
                held.enter_context(slots.take(*slot))

        def refuse(*wanted: tuple[str, str]) -> None:
            for slot in wanted:
                with pytest.raises(TooManyRequests):
                    slots.take(*slot)

        take(("acme", "a"), ("acme", "a"))
        refuse(("acme", "a"))
        take(("acme", "b"))
        refuse(("acme", "c"))
        take(("globex", "a"))
        refuse(("globex", "b"))
        take(("third", "a"), ("fourth", "a"))
        refuse(("fifth", "a"))
    assert slots.count_taken() == 0
    with slots.take("acme", "a"), slots.take("acme", "a"):
        pass


def test_searches_of_one_organization_are_limited(
    http: FlaskClient, make: Factory, acme: Any, ada: Any
) -> None:
    """By the process: a search without a match reads every row, and enough of them would occupy all threads."""
    scopes = ("users:read", "users:write", "clients:read")
    own, others = (bearer_header(make.bearer(of, *scopes)) for of in (acme, make.organization()))
    groups = f"/organizations/{acme.slug}/groups"
    group = http.post(groups, json={"name": "Pickers"}, headers=own).get_json()["data"]["id"]
    usage = f"/organizations/{acme.slug}/usage"
    searches = ["/users?q=nobody", "/clients?q=nobody", f"{groups}/{group}/members?q=nobody", usage]
    with ExitStack() as taken:
        for _ in range(SEARCHES.per_organization):
            taken.enter_context(SEARCHES.take(acme.id))
        for path in searches:
            answer = http.get(path, headers=own)
            assert (answer.status_code, answer.headers.get("Retry-After")) == (429, "2"), path
        for path, headers in (("/users", own), (f"/users?q={ada.email}", own), (searches[0], others)):
            assert http.get(path, headers=headers).status_code == 200, path
    for path in searches:
        assert http.get(path, headers=own).status_code == 200, path
    assert SEARCHES.count_taken() == 0
