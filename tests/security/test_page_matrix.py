"""The matrix of pages (TN-1, TN-16): every page for anonymous visitors, foreign sessions, missing rights and foreign
ids.

Each route of the application is in one of three tables: ``tests/api/test_route_matrix`` for the management API, and
the two here. A route that is in none of them fails, so every new route needs an entry.
"""

from __future__ import annotations

import re

import pytest
from flask import Flask

from tests.factories import Factory
from tests.support.databases import Database
from tests.support.pages import PUBLIC, SLUG, Matrix, path_of
from tests.support.stored_state import State, read_state
from tests.support.world import Corner, absent

pytestmark = pytest.mark.either


@pytest.fixture
def matrix(app: Flask, make: Factory) -> Matrix:
    return Matrix(app, make)


def _contents(database: Database) -> State:
    """Return all rows except sessions and what sign-ins create."""
    moving = {"sessions", "attempts", "audit_events"}
    return {table: rows for table, rows in read_state(database).items() if table not in moving}


def test_every_route_is_in_the_matrix(app: Flask, matrix: Matrix) -> None:
    known = {endpoint for endpoint, _, _ in matrix.pages()}
    interfaces = {endpoint.split(".")[0] for endpoint in known}
    assert interfaces == {"portal", "account", "device"}, "an interface that is missing here"
    gone = set(PUBLIC) - {rule.endpoint for rule in app.url_map.iter_rules()}
    assert not gone, "public pages that are no more"
    for endpoint, _, pattern in matrix.pages():
        assert "<organization>" in pattern, f"{endpoint} names no organization: say why it may be public"


def test_anonymous_visitor_sees_and_changes_nothing(matrix: Matrix, database: Database) -> None:
    http = matrix.app.test_client()
    before = _contents(database)
    for endpoint, method, pattern in matrix.pages():
        answer = matrix.send(http, method, path_of(pattern, matrix.acme))
        assert answer.status_code == 303, (endpoint, method, answer.status_code)
        assert answer.headers["Location"].startswith(f"/organizations/{SLUG}/login"), (endpoint, method)
    assert _contents(database) == before


def test_tn16_session_of_another_organization_counts_as_anonymous(matrix: Matrix, database: Database) -> None:
    http = matrix.app.test_client()
    matrix.make.sign_in(matrix.make.user(matrix.globex.organization, role="admin"), http)
    before = _contents(database)
    for endpoint, method, pattern in matrix.pages():
        answer = matrix.send(http, method, path_of(pattern, matrix.acme))
        assert answer.status_code == 303, (endpoint, method, answer.status_code)
        assert answer.headers["Location"].startswith(f"/organizations/{SLUG}/login"), (endpoint, method)
    assert _contents(database) == before


def test_member_reaches_the_account_and_no_portal_page(matrix: Matrix, database: Database) -> None:
    http = matrix.app.test_client()
    matrix.make.sign_in(matrix.make.user(matrix.acme.organization), http)
    before = _contents(database)
    for endpoint, method, pattern in matrix.pages():
        if endpoint.startswith("portal."):
            answer = matrix.send(http, method, path_of(pattern, matrix.acme))
            assert answer.status_code in {403, 404}, (endpoint, method, answer.status_code)
    assert _contents(database) == before


def test_tn2_foreign_and_unknown_ids_get_the_same_404(matrix: Matrix, database: Database) -> None:
    http = matrix.app.test_client()
    matrix.make.sign_in(matrix.make.user(matrix.acme.organization, role="admin"), http)
    before = _contents(database)
    never = Corner(matrix.acme.organization, matrix.acme.client, absent(matrix.acme))
    for endpoint, method, pattern in matrix.pages():
        if not re.search(
            "<(access_token_id|client_id|api_id|credential_id|failed_request_id|event_id|admin_id|invitation_id|registration_id|user_id|group_id|webhook_id|provider_id|slug)>",
            pattern,
        ):
            continue
        pages = []
        for corner in (matrix.globex, never):
            answer = matrix.send(http, method, path_of(pattern, corner))
            assert answer.status_code in {403, 404}, (endpoint, method, answer.status_code)
            shown = re.sub(r"req_[0-9a-z]{26}", "", answer.text)
            pages.append((answer.status_code, _without_ids(shown, corner)))
        assert pages[0] == pages[1], (endpoint, method)
    assert _contents(database) == before


def test_unknown_and_deleted_organizations_have_no_pages(matrix: Matrix) -> None:
    http = matrix.app.test_client()
    for endpoint, method, pattern in matrix.pages():
        for slug in ("never-was", "%00", "x" * 500):
            answer = matrix.send(http, method, path_of(pattern, matrix.acme, slug=slug))
            assert answer.status_code == 404, (endpoint, method, slug, answer.status_code)


def test_every_page_has_its_security_headers_and_runs_no_inline_code(matrix: Matrix) -> None:
    """HD-1 to HD-4 for each page that an administrator or a visitor can open, errors included."""
    http = matrix.app.test_client()
    matrix.make.sign_in(matrix.make.user(matrix.acme.organization, role="admin"), http)
    public = {
        rule.endpoint: rule.rule for rule in matrix.app.url_map.iter_rules() if "GET" in (rule.methods or ())
    }
    paths = {endpoint: path for endpoint, method, path in matrix.pages() if method == "GET"}
    paths |= {
        endpoint: path
        for endpoint, path in public.items()
        if endpoint in PUBLIC and endpoint.split(".")[0] not in {"static", "logos"}
    }
    paths |= {"nothing": "/nothing"}
    opened = 0
    for endpoint, pattern in paths.items():
        answer = http.get(path_of(pattern, matrix.acme), headers={"Accept": "text/html,*/*;q=0.8"})
        found = answer.headers
        assert found["X-Content-Type-Options"] == "nosniff", endpoint
        assert found.getlist("Server") == [""], endpoint
        if answer.mimetype != "text/html":
            assert found["Content-Security-Policy"].startswith("default-src 'none'; frame-ancestors"), (
                endpoint
            )
            continue
        opened += answer.status_code == 200
        directives = dict(part.split(" ", 1) for part in found["Content-Security-Policy"].split("; "))
        assert (
            directives["default-src"] == directives["frame-ancestors"] == directives["base-uri"] == "'none'"
        )
        assert directives["script-src"] == directives["style-src"] == "'self'", endpoint
        assert directives.get("form-action", "'self'").startswith("'self'"), endpoint
        assert found["X-Frame-Options"] == "DENY" and "camera=()" in found["Permissions-Policy"], endpoint
        assert found["Referrer-Policy"] in {"same-origin", "no-referrer"}, endpoint
        assert found["Cross-Origin-Opener-Policy"] in {"same-origin", "unsafe-none"}, endpoint
        assert "no-store" in found["Cache-Control"], endpoint
        # The policy would block them, and the page would not work.
        assert not re.search(r"<script(?![^>]* src=)|<style|<[^>]* (style|on[a-z]+)=", answer.text), endpoint
    assert opened > 60


def _without_ids(page: str, corner: Corner) -> str:
    for value in corner.ids.values():
        page = page.replace(value, "")
    return page
