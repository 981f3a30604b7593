"""First-run setup: the form, its errors, and 404 once setup is complete."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from app.operations.maintenance.doctor import Finding
from app.operations.organizations.setup import is_set_up, issue_setup_token
from tests.factories import PASSWORD, Factory

GOOD = {
    "email": "rosa@gatehouse.example",
    "name": "Rosa",
    "password": PASSWORD,
    "password_again": PASSWORD,
    "organization_name": "Acme",
    "organization_id": "",
}


@pytest.fixture
def token(app: Flask) -> str:
    with app.app_context():
        return issue_setup_token()


def form(http: FlaskClient, link: str, **changes: str) -> Any:
    page = http.get(f"/setup?token={link}")
    found = re.search(r'name="csrf_token" value="([^"]+)"', page.text)
    fields = GOOD | {"token": link, "csrf_token": found[1] if found else ""}
    return http.post("/setup", data=fields | changes, headers={"Origin": "http://localhost"})


def test_valid_link_shows_form(http: FlaskClient, token: str) -> None:
    page = http.get(f"/setup?token={token}")
    assert page.status_code == 200
    assert 'name="organization_name"' in page.text
    assert "checks" in page.text
    assert page.headers["Cache-Control"] == "no-store"


def test_form_lists_only_checks_that_failed(
    http: FlaskClient, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    findings = [
        Finding("ok", "database", "The database can be reached."),
        Finding("warning", "set-up", "This instance is not set up yet."),
        Finding("warning", "disk", "1 GB is free.", "Free some space."),
    ]
    monkeypatch.setattr("app.portal.setup.run_checks", lambda _settings: SimpleNamespace(findings=findings))
    page = http.get(f"/setup?token={token}").text
    assert "1 of 2 checks need your attention" in page and "Free some space." in page
    assert "can be reached" not in page and "not set up yet" not in page
    findings.pop()
    assert "All 1 checks of this instance passed." in http.get(f"/setup?token={token}").text


def test_invalid_token_reveals_nothing(
    http: FlaskClient, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for query in ("", "?token=gth_su_00000000wrong"):
        page = http.get(f"/setup{query}")
        assert page.status_code == 200
        assert "setup --link" in page.text
        assert "checks" not in page.text
        assert "csrf_token" not in page.text
    # As if this were an installed release.
    monkeypatch.setattr("app.config.commands._ONLY_IN_RELEASES", "pyproject.toml")
    assert ">gatehouse setup --link<" in http.get("/setup").text


def test_setup_completes_and_shows_secret_once(app: Flask, http: FlaskClient, token: str) -> None:
    answer = form(http, token)
    assert (answer.status_code, answer.location) == (303, "/setup/done")
    answer = http.get(answer.location)
    assert answer.headers["Cache-Control"] == "no-store"
    assert "gth_cs_" not in http.get("/setup/done").text
    assert re.search(r"gth_cs_\w{8}[\w-]{43}", answer.text)
    assert "/organizations/acme/login?next=%2Fportal%2Facme%2Fclients%2Fnew" in answer.text
    assert 'href="/organizations/root/login"' in answer.text
    with app.app_context():
        assert is_set_up()
    for method in (http.get, http.post):
        assert method(f"/setup?token={token}", headers={"Origin": "http://localhost"}).status_code in {
            400,
            404,
        }
    assert http.get("/setup").status_code == 404


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"email": "nobody"}, "address"),
        ({"password": "short", "password_again": "short"}, "at least 12"),
        ({"password_again": "another"}, "passwords don&#39;t match"),
        ({"organization_name": ""}, "This field is required."),
        ({"organization_id": "root"}, "reserved"),
        ({"token": "gth_su_wrong"}, "This link is no longer valid"),
    ],
)
def test_invalid_value_shows_error_and_keeps_input(
    app: Flask, http: FlaskClient, token: str, changes: dict[str, str], message: str
) -> None:
    answer = form(http, token, **changes)
    assert answer.status_code == 400
    assert message.lower() in answer.text.lower()
    assert PASSWORD not in answer.text
    if "token" not in changes:
        assert f'value="{(GOOD | changes)["name"]}"' in answer.text
    with app.app_context():
        assert not is_set_up()


def test_cross_site_form_is_refused(app: Flask, http: FlaskClient, token: str) -> None:
    answer = http.post("/setup", data=GOOD | {"token": token}, headers={"Origin": "https://evil.example"})
    assert answer.status_code in {400, 403}
    with app.app_context():
        assert not is_set_up()


def test_page_is_not_found_after_setup(http: FlaskClient, make: Factory) -> None:
    make.setup()
    answer = http.get("/setup")
    assert answer.status_code == 404
    assert "set" not in answer.text.lower().split("<title>")[1].split("</title>")[0].replace("exist", "")
