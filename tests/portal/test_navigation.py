"""The side navigation marks the entry under which a page stands."""

from __future__ import annotations

import re
from typing import Any

import pytest

MARKED = re.compile(r'<li><a href="[^"]*/portal/acme([^"]*)" aria-current="page">')


@pytest.mark.parametrize(
    ("path", "entry"),
    [
        ("", ""),
        ("/clients/new", "/clients"),
        ("/client-requests", "/clients"),
        ("/registration-tokens", "/clients"),
        ("/registrations", "/users"),
        ("/users/imports", "/users"),
        ("/revocations", "/settings"),
        ("/revocations/new", "/settings"),
        ("/settings/keys", "/settings"),
    ],
)
def test_page_is_marked_under_its_entry(ada: Any, path: str, entry: str) -> None:
    ada.get(path)

    assert MARKED.findall(ada.page.text) == [entry]


def test_who_sees_their_own_alone_is_told_so_where_there_is_nothing(
    acme: Any, person: Any, make: Any
) -> None:
    make.client(acme)
    grace = person(acme, "developer")
    grace.get("/clients")
    assert "No clients of yours yet" in grace.text and "Register the first client" in grace.text
    grace.get("/apis")
    assert "No APIs of yours yet" in grace.text
