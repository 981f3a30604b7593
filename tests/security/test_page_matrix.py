"""The matrix of pages (TN-1, TN-16): every page x stranger, sign-in elsewhere, no rights, other ids.

Each route of the application stands in one of three tables: the management API's is ``tests/api/test_route_matrix``,
the rest are here. A route that is in none fails: whoever adds one says here who may reach it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from app.models import Base
from app.rules.identifiers import new_id, public_id
from tests.factories import Factory
from tests.support.databases import Database
from tests.support.world import Corner, absent, build

# Whoever is not signed in may reach these, and why.
PUBLIC = {
    "static": "style sheets, scripts and icons",
    "health.alive": "a probe",
    "health.ready": "a probe",
    "portal.setup_form": "its token is the proof",
    "portal.setup_submit": "its token is the proof",
    "portal.theme": "a colour",
    "logos.show": "a picture that stands on public pages",
    "portal.choose": "lists the sign-ins of this browser alone",
    "account.front_door": "leads on",
    "account.choose_organization": "asks for an organization's name",
    "account.sign_in_page": "where one signs in",
    "account.verify_page": "the sign-in that waits is bound to the browser",
    "account.enrol_page": "the sign-in that waits is bound to the browser",
    "account.passkey_options": "says the same to everybody, and names nobody",
    "account.passkey_sign_in": "where one signs in",
    "account.passkey_verify": "the sign-in that waits is bound to the browser",
    "account.passkey_enrol": "the sign-in that waits is bound to the browser",
    "account.accept_page": "its token is the proof",
    "account.confirm_page": "its token is the proof",
    "account.reset_page": "its token is the proof",
    "account.forgot_page": "says the same to everybody",
    "account.sign_up_page": "where one makes an account",
    "account.ask_to_sign_out": "says who is signed in here, which is nobody",
    "account.sign_out": "ends this browser's own sign-in",
    "device.choose": "asks for an organization's name",
    "interaction.resume": "the stored request is bound to the browser",
    "interaction.select_account": "the stored request is bound to the browser",
    "interaction.decide": "the stored request is bound to the browser",
    "interaction.confirm_logout": "ends this browser's own sign-in",
}
# What programs reach without a management token, by their own proof or because it is public.
WIRE = re.compile(r"(oauth|organization_oauth|discovery)\..+|(api|api_v1)\.get_openapi|api_v1_only\.revoke")
# What stands in the matrix of the management API.
MANAGEMENT = re.compile(r"(api|api_v1)\..+")
_TOKEN = re.compile(r'name="csrf_token" value="([^"]+)"')
SLUG = "acme-corner"


class Matrix:
    """The pages for people, and a corner of the world that they show."""

    def __init__(self, app: Flask, make: Factory) -> None:
        self.app, self.make = app, make
        self.acme, self.globex = build(app, make)

    def pages(self) -> Iterator[tuple[str, str, str]]:
        """(endpoint, method, path pattern) of every page that is not public."""
        for rule in self.app.url_map.iter_rules():
            if (
                rule.endpoint in PUBLIC
                or WIRE.fullmatch(rule.endpoint)
                or MANAGEMENT.fullmatch(rule.endpoint)
            ):
                continue
            for method in sorted((rule.methods or set()) & {"GET", "POST"}):
                yield rule.endpoint, method, rule.rule

    def send(self, http: FlaskClient, method: str, path: str) -> TestResponse:
        """The page's answer, or the answer to its form with a token that counts."""
        if method == "GET":
            return http.get(path)
        token = _TOKEN.search(http.get(f"/organizations/{SLUG}/login?reauthenticate=1").text)
        assert token is not None
        fields = {
            "csrf_token": token[1],
            "name": "Taken over",
            "email": "mallory@example.com",
            "role": "admin",
        }
        return http.post(path, data=fields, headers={"Sec-Fetch-Site": "same-origin"})


def _path(pattern: str, corner: Corner, slug: str = SLUG) -> str:
    values = {
        "organization": slug,
        "slug": corner.ids["id"],
        "client_id": corner.ids["clientId"],
        "credential_id": corner.ids["credentialId"],
        "admin_id": corner.ids["adminId"],
        "api_id": corner.ids["resourceId"],
        "event_id": corner.ids["auditEventId"],
        "grant_id": corner.ids["grantId"],
        "access_token_id": corner.ids["tokenId"],
        "revocation_id": corner.ids["revocationId"],
        "form": "csv",
        "failed_request_id": corner.ids["failedRequestId"],
        "invitation_id": corner.ids["invitationId"],
        "consent_id": public_id("con", new_id()),
        "session_id": public_id("ses", new_id()),
        "passkey_id": public_id("pky", new_id()),
        "browser_id": public_id("kbr", new_id()),
        "request_id": corner.ids["clientRequestId"],
        "registration_id": corner.ids["registrationId"],
        "token_id": corner.ids["registrationTokenId"],
        "webhook_id": corner.ids["webhookId"],
        "delivery_id": corner.ids["deliveryId"],
        "user_id": corner.ids["userId"],
        "import_id": corner.ids["importId"],
        "role": "developer",
        "setting": "oauth.access_token.ttl_seconds",
        "topic": "sessions",
        "algorithm": "EdDSA",
        "token": "x",
    }
    return re.sub(r"<(?:[^:>]+:)?([^>]+)>", lambda match: quote(values[match[1]]), pattern)


@pytest.fixture
def matrix(app: Flask, make: Factory) -> Matrix:
    return Matrix(app, make)


def _contents(database: Database) -> dict[str, Any]:
    """Every row of what people make; sign-ins and what they leave behind aside."""
    moving = {"sessions", "attempts", "audit_events"}
    return {
        table: sorted(map(repr, database.query(f"SELECT * FROM {table}")))
        for table in Base.metadata.tables
        if table not in moving
    }


def test_every_route_stands_in_a_table(app: Flask, matrix: Matrix) -> None:
    known = {endpoint for endpoint, _, _ in matrix.pages()}
    faces = {endpoint.split(".")[0] for endpoint in known}
    assert faces == {"portal", "account", "device"}, "a face that nobody has said anything about"
    gone = set(PUBLIC) - {rule.endpoint for rule in app.url_map.iter_rules()}
    assert not gone, "public pages that are no more"
    for endpoint, _, pattern in matrix.pages():
        assert "<organization>" in pattern, f"{endpoint} names no organization: say why it may be public"


def test_a_stranger_sees_nothing_and_changes_nothing(matrix: Matrix, database: Database) -> None:
    http = matrix.app.test_client()
    before = _contents(database)
    for endpoint, method, pattern in matrix.pages():
        answer = matrix.send(http, method, _path(pattern, matrix.acme))
        assert answer.status_code == 303, (endpoint, method, answer.status_code)
        assert answer.headers["Location"].startswith(f"/organizations/{SLUG}/login"), (endpoint, method)
    assert _contents(database) == before


def test_tn16_a_sign_in_elsewhere_is_that_of_a_stranger(matrix: Matrix, database: Database) -> None:
    http = matrix.app.test_client()
    matrix.make.sign_in(matrix.make.user(matrix.globex.organization, role="admin"), http)
    before = _contents(database)
    for endpoint, method, pattern in matrix.pages():
        answer = matrix.send(http, method, _path(pattern, matrix.acme))
        assert answer.status_code == 303, (endpoint, method, answer.status_code)
        assert answer.headers["Location"].startswith(f"/organizations/{SLUG}/login"), (endpoint, method)
    assert _contents(database) == before


def test_a_member_reaches_the_own_account_and_no_page_of_the_portal(
    matrix: Matrix, database: Database
) -> None:
    http = matrix.app.test_client()
    matrix.make.sign_in(matrix.make.user(matrix.acme.organization), http)
    before = _contents(database)
    for endpoint, method, pattern in matrix.pages():
        if endpoint.startswith("portal."):
            answer = matrix.send(http, method, _path(pattern, matrix.acme))
            assert answer.status_code in {403, 404}, (endpoint, method, answer.status_code)
    assert _contents(database) == before


def test_tn2_an_administrator_gets_one_404_for_foreign_and_absent_ids(
    matrix: Matrix, database: Database
) -> None:
    http = matrix.app.test_client()
    matrix.make.sign_in(matrix.make.user(matrix.acme.organization, role="admin"), http)
    before = _contents(database)
    never = Corner(matrix.acme.organization, matrix.acme.client, absent(matrix.acme))
    for endpoint, method, pattern in matrix.pages():
        if not re.search(
            "<(access_token_id|client_id|api_id|credential_id|failed_request_id|event_id|admin_id|invitation_id|registration_id|user_id|webhook_id|slug)>",
            pattern,
        ):
            continue
        pages = []
        for corner in (matrix.globex, never):
            answer = matrix.send(http, method, _path(pattern, corner))
            assert answer.status_code in {403, 404}, (endpoint, method, answer.status_code)
            shown = re.sub(r"req_[0-9a-z]{26}", "", answer.text)
            pages.append((answer.status_code, _without_ids(shown, corner)))
        assert pages[0] == pages[1], (endpoint, method)
    assert _contents(database) == before


def test_an_organization_that_never_was_or_is_gone_has_no_pages(matrix: Matrix) -> None:
    http = matrix.app.test_client()
    for endpoint, method, pattern in matrix.pages():
        for slug in ("never-was", "%00", "x" * 500):
            answer = matrix.send(http, method, _path(pattern, matrix.acme, slug=slug))
            assert answer.status_code == 404, (endpoint, method, slug, answer.status_code)


def _without_ids(page: str, corner: Corner) -> str:
    for value in corner.ids.values():
        page = page.replace(value, "")
    return page
