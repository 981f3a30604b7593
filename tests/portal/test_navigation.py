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
