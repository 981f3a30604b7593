"""The side navigation marks the entry of the current page."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from app.portal.setting_texts import TOPICS

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


@pytest.mark.parametrize(
    ("page", "tab", "subtabs"),
    [
        ("", "Overview", []),
        ("/quickstart", "Quickstart", []),
        ("/credentials", "Credentials", []),
        ("/redirects", "Redirects", []),
        ("/access", "Access", ["Scopes", "APIs", "Roles", "Claims"]),
        ("/claims", "Access", ["Scopes", "APIs", "Roles", "Claims"]),
        ("/tokens", "Tokens", ["Grants", "Access tokens"]),
        ("/tokens/access", "Tokens", ["Grants", "Access tokens"]),
        ("/logs", "Requests", []),
        ("/advanced", "Settings", ["Details", "Advanced"]),
    ],
)
def test_page_of_client_marks_one_of_eight_tabs(
    ada: Any, make: Any, acme: Any, page: str, tab: str, subtabs: list[str]
) -> None:
    client = make.client(acme)
    ada.get(f"/clients/{client.client_id}{page}")

    rows = dict(re.findall(r'<nav class="(tabs|seg)"[^>]*>(.*?)</nav>', ada.page.text, re.DOTALL))
    assert rows["tabs"].count("<a ") == 8
    assert re.findall(r'aria-current="page">([^<]+)', rows["tabs"]) == [tab]
    assert re.findall(r">([^<]+)</a>", rows.get("seg", "")) == subtabs
    current = re.findall(rf'href="[^"]*{client.client_id}([^"]*)" aria-current="page"', rows.get("seg", ""))
    assert current == ([page] if subtabs else [])


def test_client_without_users_has_no_tab_for_redirects(ada: Any, make: Any, acme: Any) -> None:
    client = make.client(acme, type="machine", redirect_uris=[], scopes=[])
    ada.get(f"/clients/{client.client_id}")

    assert (
        f"{client.client_id}/redirects" not in ada.page.text and f"{client.client_id}/access" in ada.page.text
    )


def test_settings_list_every_topic_once_under_a_heading(ada: Any) -> None:
    page = ada.get("/settings/audit").text
    listed = re.findall(r'<li><a href="[^"]*/portal/acme/settings/([a-z-]+)"', page)
    assert set(TOPICS) < set(listed)
    # Beside the page, and in the menu of narrow screens.
    assert Counter(listed) == dict.fromkeys(listed, 2)
    assert re.findall(r"<h2>(\w+)</h2><ul>", page) == ["Organization", "People", "Clients"] * 2
