"""The side navigation marks the entry of the current page."""

from __future__ import annotations

import html
import re
from collections import Counter
from typing import Any

import pytest
from flask import Flask

from app.operations.organizations.roles import create_role
from app.portal.setting_texts import TOPICS
from tests.factories import Factory
from tests.support.world import build

_LINK = re.compile(r'<a [^>]*href="([^"]+)"')
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


@pytest.mark.parametrize(
    "permissions",
    [
        ["roles:read", "tokens:read", "registrations:read"],
        ["organization:read", "logs:read", "clients:read:own"],
        ["clients:read", "resources:read", "resources:write:own", "roles:write"],
    ],
    ids=" ".join,
)
def test_no_link_leads_to_a_page_that_the_role_may_not_open(
    app: Flask, make: Factory, permissions: list[str]
) -> None:
    corner, _ = build(app, make)
    with app.app_context():
        create_role(make.actor(corner.organization), {"id": "narrow", "permissions": permissions})
    user = make.user(corner.organization, role="narrow")
    http = app.test_client()
    make.sign_in(user, http)
    base = f"/portal/{corner.organization.slug}"
    seen, found = set(), [(base, base)]
    while found:
        page, path = found.pop()
        answer = http.get(path)
        assert answer.status_code in {200, 303}, (page, path)
        pages = [answer.location] if answer.status_code == 303 else _LINK.findall(answer.text)
        ours = {html.unescape(link).split("#")[0].split("?")[0] for link in pages if link.startswith(base)}
        found += [(path, link) for link in ours - seen]
        seen |= ours
    assert len(seen) > 3
