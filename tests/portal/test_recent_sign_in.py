"""Pages that ask for a recent sign-in, and where that sign-in leads (PO-4, PO-5)."""

from __future__ import annotations

import html
import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from flask import Flask

from app.operations.clients.credential_revocation import revoke_credentials
from app.operations.clients.credentials import create_credential, list_credentials
from tests.factories import PASSWORD
from tests.portal.conftest import PortalUser
from tests.portal.test_user_imports import upload, work
from tests.support.cases import each
from tests.support.databases import Database

LINK = re.compile(r'id="sign-in-again">[^<]*<a href="([^"]+)"')


def age(database: Database) -> None:
    database.query("UPDATE sessions SET authenticated_at = '2026-01-01 00:00:00'")


def destination(answer: Any) -> str:
    """Return where the sign-in that the answer asks for leads."""
    assert answer.status_code == 303, answer.text
    query = parse_qs(urlsplit(answer.headers["Location"]).query)
    assert query["reauthenticate"] == ["1"]
    return query["next"][0]


def sign_in_again(user: PortalUser, url: str) -> str:
    """Sign in at the URL, and return the URL that the user comes to."""
    page = user.http.get(url)
    state = dict(re.findall(r'name="(csrf_token|next|reauthenticate)" value="([^"]*)"', page.text))
    state = {name: html.unescape(value) for name, value in state.items()}
    done = user.http.post(
        urlsplit(url).path,
        data={**state, "email": user.user.email, "password": PASSWORD},
        headers={"Sec-Fetch-Site": "same-origin"},
    )
    assert done.status_code == 303, done.text
    return str(done.headers["Location"])


@each(
    "path",
    [
        "/administrators/new?email=bob%40acme.example",
        "/settings/permissions/new",
        "/settings/mfa",
        "/settings/sessions",
    ],
)
def test_form_asks_before_anything_is_typed(ada: PortalUser, database: Database, path: str) -> None:
    assert ada.get(path).status_code == 200
    age(database)
    answer = ada.get(path)
    assert destination(answer) == f"/portal/acme{path}"
    assert sign_in_again(ada, answer.headers["Location"]) == f"/portal/acme{path}"
    assert ada.get(path).status_code == 200


def test_reader_of_settings_is_not_asked(acme: Any, portal_user: Any, database: Database) -> None:
    auditor = portal_user(acme, "auditor")
    age(database)
    for path in ("/settings/mfa", "/settings/sessions", "/settings/permissions/auditor"):
        assert auditor.get(path).status_code == 200
        assert "recent sign-in" not in auditor.text


@each(
    "path",
    [
        "/clients/new?type=machine",
        "/clients/{client}/access",
        "/clients/{client}/advanced",
        "/settings/registration",
        "/settings/permissions/auditor",
    ],
)
def test_form_with_some_such_changes_offers_the_sign_in(
    ada: PortalUser, make: Any, acme: Any, database: Database, path: str
) -> None:
    path = path.format(client=make.client(acme).client_id)
    assert not LINK.search(ada.get(path).text)
    age(database)
    found = LINK.search(ada.get(path).text)
    assert found and "Some changes on this page require a recent sign-in" in ada.text
    assert sign_in_again(ada, html.unescape(found[1])) == f"/portal/acme{path}"
    assert not LINK.search(ada.get(path).text)


def test_form_of_a_new_organization_offers_the_sign_in(
    make: Any, portal_user: Any, database: Database
) -> None:
    operator = portal_user(make.root())
    age(database)
    found = LINK.search(operator.get("/organizations/new").text)
    assert found and "/organizations/root/login" in found[1]
    assert destination(operator.send("/organizations/new", name="One", email="one@acme.example")) == (
        "/portal/root/organizations/new"
    )
    assert operator.send("/organizations/new", name="Two").headers["Location"].endswith("/organizations/two")


def test_client_with_management_scopes_is_registered_after_the_sign_in(
    ada: PortalUser, database: Database
) -> None:
    path = "/clients/new?type=machine"
    ada.get(path)
    age(database)
    answer = ada.send(path, name="Robot", scopes="users:read")
    assert destination(answer) == f"/portal/acme{path}" and database.count("clients") == 0
    assert sign_in_again(ada, answer.headers["Location"]) == f"/portal/acme{path}"
    ada.get(path)
    assert "gth_cs_" in ada.submit(path, name="Robot", scopes="users:read").text
    age(database)
    ada.get(path)
    assert "gth_cs_" in ada.submit(path, name="Plain", scopes="orders:read").text


@pytest.fixture
def rotating(app: Flask, make: Any, acme: Any) -> str:
    """Return the ID of a client whose rotation has only old secrets."""
    made, system = make.client(acme), make.system(acme)
    with app.app_context():
        new = create_credential(system, made.client_id, {"retire_others_in_seconds": 3600}).credential
        revoke_credentials(system, made.client_id, credential_id=new.public_id)
    return str(made.client_id)


def test_button_leads_back_to_the_page_that_it_is_on(
    app: Flask, ada: PortalUser, make: Any, acme: Any, rotating: str, database: Database
) -> None:
    bob = make.user(acme, email="bob@acme.example")
    assert upload(ada, "email,roles\nnew@acme.example,admin\n") == 303
    ada.follow()
    work(app)
    assert ada.page is not None
    checked = ada.page.request.path.removeprefix("/portal/acme")
    rotation = f"/clients/{rotating}/credentials/rotation"
    buttons = (
        (rotation, f"{rotation}/update", {"expires_in_seconds": "0"}),
        (f"/users/{bob.public_id}", f"/users/{bob.public_id}/reset", {}),
        (checked, f"{checked}/start", {}),
    )
    for page, action, fields in buttons:
        ada.get(page)
        age(database)
        answer = _press(ada, page, action, fields)
        back = destination(answer)
        assert ada.get(back).headers.get("Location", back).endswith(f"/portal/acme{page}"), action
        database.query("UPDATE sessions SET authenticated_at = '2099-01-01 00:00:00'")
    with app.app_context():
        live = [each.is_live for each in list_credentials(make.system(acme), rotating).items]
    assert live.count(True) == 1 and database.count("account_links") == 0
    age(database)
    for referrer in (
        "",
        "https://elsewhere.example/portal/acme/clients",
        "http://localhost/organizations/acme",
    ):
        answer = _press(ada, page, f"{rotation}/update", {"expires_in_seconds": "0"}, referrer=referrer)
        assert destination(answer) == "/portal/acme"


def _press(
    user: PortalUser, page: str, action: str, fields: dict[str, str], *, referrer: str | None = None
) -> Any:
    if referrer is None:
        referrer = f"http://localhost/portal/acme{page}"
    return user.http.post(
        f"/portal/acme{action}",
        data={"csrf_token": user.hidden("csrf_token"), **fields},
        headers={"Sec-Fetch-Site": "same-origin", "Referer": referrer},
    )
