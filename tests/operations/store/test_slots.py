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


def test_few_organizations_cannot_hold_all_slots() -> None:
    slots = Slots(6, 2, partial(TooManyRequests, "Too many.", retry_after=10))
    with ExitStack() as taken:
        for name in ("acme", "acme", "organization 0"):
            taken.enter_context(slots.take(name))
        for name in ("acme", "organization 0"):
            with pytest.raises(TooManyRequests):
                slots.take(name)
        for number in range(1, 4):
            taken.enter_context(slots.take(f"organization {number}"))
        with pytest.raises(TooManyRequests):
            slots.take("globex")
    assert slots.count_taken() == 0


def test_searches_of_one_organization_are_limited(
    http: FlaskClient, make: Factory, acme: Any, ada: Any
) -> None:
    """By the process: a search without a match reads every row, and enough of them would occupy all threads."""
    scopes = ("users:read", "users:write", "clients:read")
    own, others = (bearer_header(make.bearer(of, *scopes)) for of in (acme, make.organization()))
    groups = f"/organizations/{acme.slug}/groups"
    group = http.post(groups, json={"name": "Pickers"}, headers=own).get_json()["data"]["id"]
    searches = ["/users?q=nobody", "/clients?q=nobody", f"{groups}/{group}/members?q=nobody"]
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
