"""Access to the portal, and the headers of its pages."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from flask import Flask

from app.operations.organizations.settings import update_settings
from tests.support.cases import each

pytestmark = pytest.mark.either

PAGES = [
    "",
    "/clients",
    "/clients/new",
    "/administrators",
    "/administrators/new",
    "/settings/general",
    "/settings/sign-in",
    "/settings/permissions",
    "/settings/permissions/new",
    "/settings/delete",
]


@each("path", PAGES)
def test_page_without_sign_in_redirects_to_sign_in(http: Any, acme: Any, path: str) -> None:
    answer = http.get(f"/portal/acme{path}")

    assert answer.status_code == 303
    leads = urlsplit(answer.headers["Location"])
    assert leads.path == "/organizations/acme/login"
    assert parse_qs(leads.query) == {"next": [f"/portal/acme{path}"]}


@each("path", PAGES)
def test_administrator_opens_every_page(ada: Any, path: str) -> None:
    answer = ada.get(path)

    assert answer.status_code == 200
    assert answer.headers["Cache-Control"] == "no-store"
    assert "form-action 'self'" in answer.headers["Content-Security-Policy"]
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert "Cookie" in answer.headers["Vary"]
    assert " style=" not in answer.text and "<style" not in answer.text
    assert answer.text.count("<h1") == 1


@pytest.mark.parametrize("path", PAGES)
def test_session_is_not_valid_in_another_organization(make: Any, ada: Any, path: str) -> None:
    make.organization("globex", name="Globex")

    answer = ada.get(f"/portal/globex{path}")

    assert answer.status_code == 303
    assert urlsplit(answer.headers["Location"]).path == "/organizations/globex/login"


def test_unknown_organization_is_not_found(ada: Any) -> None:
    answer = ada.get("/portal/nowhere/clients")

    assert answer.status_code == 404
    assert "There is no such organization" in ada.text


def test_member_is_refused_and_led_to_account(acme: Any, portal_user: Any) -> None:
    mia = portal_user(acme, role=None)

    answer = mia.get("")

    assert answer.status_code == 403
    assert "/organizations/acme/account" in answer.text


def test_auditor_has_read_only_settings(acme: Any, portal_user: Any) -> None:
    auditor = portal_user(acme, role="auditor")
    auditor.get("/settings/sessions")
    assert "You have read-only access to these settings" in auditor.text

    answer = auditor.send("/settings/sessions", version="1", base="{}")

    assert answer.status_code == 403


def test_role_with_few_permissions_gets_pages_without_links_that_refuse_it(
    app: Flask, make: Any, acme: Any, portal_user: Any
) -> None:
    client = make.client(acme, app_roles=[{"key": "editor", "name": "Editor"}])
    may = {
        "integrator": ["clients:read", "organization:read", "users:write"],
        "clerk": ["admins:write", "organization:read", "users:read"],
    }
    roles = {role: {"name": role, "permissions": permissions} for role, permissions in may.items()}
    with app.app_context():
        update_settings(make.system(acme), "acme", {"user_permissions": {"roles": roles}})
    integrator, clerk = (portal_user(acme, role) for role in may)
    page = f"/clients/{client.client_id}"
    for path in (page, f"{page}/quickstart", f"{page}/roles"):
        answer = integrator.get(path)
        assert answer.status_code == 200 and f'{page}/logs"' not in answer.text, path
    answer = clerk.get(f"/users/{clerk.user.public_id}")
    assert answer.status_code == 200 and "/administrators/new" not in answer.text


@pytest.mark.parametrize(
    "path", ["/administrators", "/administrators/new", "/organizations", "/settings/delete"]
)
def test_developer_is_refused_administrator_pages(acme: Any, portal_user: Any, path: str) -> None:
    answer = portal_user(acme, role="developer").get(path)

    assert answer.status_code in {403, 404}


def test_form_without_csrf_token_is_rejected(ada: Any, database: Any) -> None:
    answer = ada.http.post("/portal/acme/clients/new?type=machine", data={"name": "Shop"})

    assert answer.status_code == 400
    assert database.count("clients") == 0


def test_cross_site_form_is_rejected(ada: Any, database: Any) -> None:
    ada.get("/clients/new?type=machine")
    answer = ada.http.post(
        "/portal/acme/clients/new?type=machine",
        data={"name": "Shop", "csrf_token": ada.hidden("csrf_token")},
        headers={"Sec-Fetch-Site": "cross-site"},
    )

    assert answer.status_code == 400
    assert database.count("clients") == 0


def test_root_administrator_opens_another_organization(make: Any, acme: Any, portal_user: Any) -> None:
    operator = portal_user(make.root())

    answer = operator.get("/portal/acme")

    assert answer.status_code == 200
    assert "as an instance administrator" in operator.text


def test_chooser_lists_sessions_of_browser(make: Any, ada: Any) -> None:
    named = {"developer": {"name": "Integrator", "permissions": ["organization:read"]}}
    globex = make.organization("globex", name="Globex", settings={"user_permissions": {"roles": named}})
    make.sign_in(make.user(globex, role="developer"), ada.http)

    ada.get("/portal")
    assert "Administrator" in ada.text and "Integrator" in ada.text, "the roles by their names"

    assert "Acme" in ada.text and "Globex" in ada.text
    assert 'href="/portal/globex"' in ada.page.text
    ada.get("/portal?q=glo")
    assert "Globex" in ada.text and "Acme" not in ada.text


def test_list_of_all_organizations_is_offered_only_to_who_may_open_it(make: Any, portal_user: Any) -> None:
    for role, offered in (("auditor", True), ("developer", False)):
        user = portal_user(make.root(), role)
        assert (user.get("/portal/root/organizations").status_code == 200) is offered
        for path in ("/portal/root", "/portal"):
            assert ('"/portal/root/organizations"' in user.get(path).text) is offered, (role, path)


def test_chooser_without_sign_in_redirects_to_sign_in(http: Any) -> None:
    answer = http.get("/portal")

    assert answer.status_code == 303 and answer.headers["Location"] == "/login"


def test_notice_is_shown_once_and_not_by_a_url(ada: Any) -> None:
    ada.get("/settings/general")
    ada.submit("/settings/general", version=ada.hidden("version"), name="Acme Two")
    assert "Saved. The change is live." in ada.text and not ada.page.request.query_string

    assert "Saved. The change is live." not in ada.get("/settings/general").text
    assert "Saved. The change is live." not in ada.get("/settings/general?done=saved").text


def test_notice_is_only_for_its_page_and_session(make: Any, acme: Any, ada: Any, portal_user: Any) -> None:
    ada.get("/settings/general")
    ada.send("/settings/general", version=ada.hidden("version"), name="Acme Two")
    [cookie] = [value for value in ada.page.headers.getlist("Set-Cookie") if "-once-" in value]
    assert "HttpOnly" in cookie and "saved" not in cookie
    assert "Saved. The change is live." not in ada.get("/settings/signing").text
    name, _, value = cookie.partition(";")[0].partition("=")
    grace = portal_user(acme)
    grace.http.set_cookie(name, value, domain="localhost")
    assert "Saved. The change is live." not in grace.get("/settings/general").text
    assert "Saved. The change is live." in ada.get("/settings/general").text
