"""The matrix of rights on pages (TN-1, PO-1): every page and form for every role, with own and foreign objects.

``tests/support/rights/pages.txt`` lists what each role may use; a page without a line there fails.
"""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask
from werkzeug.test import TestResponse

from app.operations.sign_in import sessions
from app.rules.identifiers import public_id
from tests.factories import Factory
from tests.support.databases import Database
from tests.support.pages import Matrix, path_of
from tests.support.rights import NONE, OWN, ROLES, ROOT, written
from tests.support.rights.calls import ids_for
from tests.support.rights.role_users import spare_of, things_of, user_with_role
from tests.support.world import Corner
from tests.support.world_rows import consented

pytestmark = pytest.mark.either
TABLE = written("pages")
# Pages that need more than one click, with the test that covers them.
ELSEWHERE = {
    "account.passkey_page": "tests/account/test_passkeys.py",
    "account.remove_passkey_action": "tests/account/test_passkeys.py",
    "account.unlink_identity_action": "tests/account/test_linked_identities.py",
    "account.verify_email_page": "tests/account/test_confirm.py",
    "portal.playground_run": "tests/portal/playground/test_rights.py",
    "account.remove_browser": "tests/account/test_activity.py",
    "account.remove_app_factor_page": "tests/account/test_security_pages.py",
}
# Forms that succeed without an audit event, with the reason.
UNTOLD = {
    "account.end_all_other_sessions": "there is no other sign-in",
    "account.link_identity_action": "nothing is linked before the provider answers",
    "portal.confirm": "the secret is not blocked",
    "portal.enable_user": "the user is enabled",
    "portal.sign_out_user": "disabling the user ended what there was",
    "portal.client_access": "the form has what is so already",
    "portal.client_claims": "the form has what is so already",
    "portal.user_attributes": "the form has what is so already",
    "portal.client_details": "the form has what is so already",
    "portal.logo_remove": "there is no logo",
    "portal.update_rotation": "an empty form moves nothing",
    "portal.scope_page": "the form has what is so already",
    "portal.setting_topic": "the form has what is so already",
}
# Forms that change the client or the API and would revoke tokens.
_FIRST = {
    *("portal.revoke_client_token", "portal.revoke_client_grant", "portal.reveal"),
    *("portal.end_one_user_session", "portal.request_api_access", "portal.withdraw_client_access"),
    "portal.remove_client_role",
}
# Forms that delete what others need come last, in this order.
_ENDINGS = (
    *("portal.update_rotation", "portal.cancel_rotation", "portal.revoke"),
    *("account.end_one_session", "account.remove_app"),
    *("portal.new_revocation", "portal.sign_out_user", "portal.reset_second_factors"),
    *("portal.unlink_identity", "portal.identity_provider_delete"),
    *("portal.reset_user_password", "portal.delete_user_page", "portal.client_delete"),
    *("account.end_all_other_sessions",),
    *("account.change_password_page", "account.delete_account_page", "portal.delete"),
)


@pytest.fixture
def matrix(app: Flask, make: Factory) -> Matrix:
    return Matrix(app, make)


def test_po1_permission_table_matches_the_pages(matrix: Matrix) -> None:
    """TN-1: deny by default. A new page needs a line in the table."""
    assert {f"{endpoint}/{method}" for endpoint, method, _ in matrix.pages()} == set(TABLE)
    assert all(set(row) == set(ROLES) - {ROOT} for row in TABLE.values())


@pytest.mark.parametrize("role", [role for role in ROLES if role != ROOT])
def test_tn1_each_role_reaches_exactly_its_pages(
    app: Flask, matrix: Matrix, make: Factory, database: Database, role: str
) -> None:
    """AU-1: a rejected form leaves no audit event, a successful one leaves one."""
    role_user = user_with_role(app, make, matrix.acme, role)
    own = things_of(app, make, matrix.acme, role_user.user)
    others = things_of(app, make, matrix.acme, make.user(matrix.acme.organization))
    spare = _spare(app, make, matrix.acme)
    with app.app_context():
        _, session = sessions.start_session(role_user.user.organization, role_user.user.id)
        consent = consented(matrix.acme.client, role_user.user)
    mine = {"session_id": public_id("ses", session), "consent_id": consent}
    http = app.test_client()
    make.sign_in(role_user.user, http)
    done: list[tuple[str, str, TestResponse]] = []

    def visit(entry: tuple[str, str, str], ids: dict[str, str], **chosen: str) -> TestResponse:
        endpoint, method, pattern = entry
        for name, value in chosen.items():
            pattern = pattern.replace(f"<{name}>", value)
        path = path_of(pattern, Corner(matrix.acme.organization, matrix.acme.client, ids))
        query = f"?client_id={ids['clientId']}" if endpoint == "portal.new_revocation" else ""
        answer = matrix.send(http, method, path + query)
        answer.get_data()  # An export is streamed and holds its connection until it was read.
        done.append((endpoint, method, answer))
        return answer

    for entry in sorted(matrix.pages(), key=_place):
        endpoint, method, _ = entry
        may = TABLE[f"{endpoint}/{method}"][role]
        chosen = mine if endpoint.startswith("account.") else {"session_id": own["sessionId"]}
        if may == OWN:
            status = visit(entry, ids_for(endpoint, others), session_id=others["sessionId"]).status_code
            assert status == 404, (endpoint, method, role, "other user's", status)
        answer = visit(entry, {**ids_for(endpoint, own), **spare.get(endpoint, {})}, **chosen)
        if may == NONE:
            # Who may not see the overview is sent to a page that they may see.
            elsewhere = {303} if endpoint == "portal.overview" else set()
            assert answer.status_code in {403, 404} | elsewhere, (endpoint, method, role, answer.status_code)
        elif endpoint not in ELSEWHERE:
            assert answer.status_code not in {401, 403, 404}, (endpoint, method, role, answer.status_code)
            assert "/login" not in answer.headers.get("Location", ""), (endpoint, method, role)
    _are_told(database, role, done)


def _are_told(database: Database, role: str, done: list[tuple[str, str, TestResponse]]) -> None:
    rows = database.query("SELECT request_id FROM audit_events WHERE request_id IS NOT NULL")
    told = {_text(row[0]) for row in rows}
    silent, loud = set(), set()
    for endpoint, method, answer in done:
        is_told = answer.headers["X-Request-Id"] in told
        if (method == "GET" or answer.status_code >= 400) and is_told:
            loud.add(endpoint)
        if method == "POST" and answer.status_code == 303 and not is_told:
            silent.add(endpoint)
    assert loud == set(), (role, "changed nothing but left an audit event")
    assert silent <= set(UNTOLD), (role, "left no audit event", silent - set(UNTOLD))


def _spare(app: Flask, make: Factory, corner: Corner) -> dict[str, dict[str, str]]:
    ids = spare_of(app, make, corner)
    return {
        "portal.decline_request": ids["declineClientRequest"],
        "portal.reject_registration": ids["rejectRegistration"],
        "portal.import_cancel": ids["cancelUserImport"],
    }


def _place(entry: tuple[str, str, str]) -> tuple[bool, int, bool]:
    endpoint, method, _ = entry
    ending = _ENDINGS.index(endpoint) + 1 if endpoint in _ENDINGS else -(endpoint in _FIRST)
    destroys = any(word in endpoint for word in ("delete", "remove", "withdraw", "revoke"))
    return method != "GET", ending, destroys


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
