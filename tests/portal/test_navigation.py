"""The side navigation marks the entry of the current page."""

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
        ("/registration-tokens", "/settings"),
        ("/registrations", "/users"),
        ("/users/imports", "/users"),
        ("/revocations", "/settings"),
        ("/revocations/new", "/settings"),
        ("/settings/keys", "/settings"),
    ],
)
def test_page_marks_its_navigation_entry(ada: Any, path: str, entry: str) -> None:
    ada.get(path)

    assert MARKED.findall(ada.page.text) == [entry]


def test_developer_without_clients_sees_empty_state(acme: Any, portal_user: Any, make: Any) -> None:
    make.client(acme)
    grace = portal_user(acme, "developer")
    grace.get("/clients")
    assert "You have no clients yet" in grace.text and "Register your first client" in grace.text
    grace.get("/apis")
    assert "You have no APIs yet" in grace.text
