"""Users in the portal: finding, disabling, signing out, resetting and deleting them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import update

from app.extensions import db
from app.models.user import User
from app.operations.sign_in.password_sign_in import sign_in
from app.operations.sign_in.sign_in import SignedIn
from tests.factories import PASSWORD
from tests.support.databases import Database


@pytest.fixture
def bob(make: Any, acme: Any) -> Any:
    return make.user(acme, email="bob@acme.example", name="Bob")


def test_list_is_searched_by_name_status_and_role(ada: Any, make: Any, acme: Any, bob: Any) -> None:
    make.user(acme, email="cleo@acme.example", name="Cleo", role="auditor")
    make.user(make.organization("globex"), email="dora@globex.example", name="Dora")
    ada.get("/users")
    assert "Bob" in ada.text and "Cleo" in ada.text and "Dora" not in ada.text
    ada.get("/users?q=bo")
    assert "Bob" in ada.text and "Cleo" not in ada.text
    ada.get("/users?role=auditor")
    assert "Cleo" in ada.text and "Bob" not in ada.text
    ada.get("/users?status=disabled")
    assert "No users found" in ada.text
    ada.get("/users?status=pope&role=pope&cursor=x")
    assert "Bob" in ada.text and "Cleo" in ada.text


def test_user_is_disabled_and_enabled(app: Flask, ada: Any, make: Any, acme: Any, bob: Any) -> None:
    make.sign_in(bob)
    ada.get(f"/users/{bob.public_id}")
    assert "bob@acme.example" in ada.text and "last active just now" in ada.text
    ada.get(f"/users/{bob.public_id}/disable")
    assert "1 session will end" in ada.text and "0 connected apps" in ada.text
    ada.submit(f"/users/{bob.public_id}/disable")
    assert "User disabled" in ada.text and "No active sessions" in ada.text
    with app.app_context():
        assert not isinstance(sign_in(acme.id, bob.email, PASSWORD), SignedIn)
    ada.send(f"/users/{bob.public_id}/enable")
    ada.follow()
    with app.app_context():
        assert isinstance(sign_in(acme.id, bob.email, PASSWORD), SignedIn)


def test_signing_out_user_keeps_account(ada: Any, make: Any, bob: Any) -> None:
    make.sign_in(bob)
    ada.get(f"/users/{bob.public_id}")
    ada.send(f"/users/{bob.public_id}/sign-out")
    ada.follow()
    assert "signed out everywhere" in ada.text and "Active" in ada.text and "No active sessions" in ada.text


def test_reset_link_is_shown_only_once(ada: Any, bob: Any) -> None:
    """PW-4: the page shows a link, never a password, and is not cached."""
    ada.get(f"/users/{bob.public_id}")
    answer = ada.submit(f"/users/{bob.public_id}/reset")
    link = re.search(r"https?://[^<]+/organizations/acme/reset/gth_pw_[A-Za-z0-9_-]+", answer.text)
    assert link and answer.headers["Cache-Control"] == "no-store"
    assert link[0] not in ada.get(f"/users/{bob.public_id}").text


def test_own_reset_link_requires_a_recent_sign_in(ada: Any, database: Database) -> None:
    """PW-4. The sign-in leads back to the user's page."""
    ada.get(f"/users/{ada.user.public_id}")
    database.query("UPDATE sessions SET authenticated_at = '2026-01-01 00:00:00'")
    path = f"/users/{ada.user.public_id}/reset"
    answer = ada.send(path)
    assert answer.status_code == 303 and "reauthenticate=1" in answer.headers["Location"]
    assert ada.get(path).headers["Location"].endswith(f"/portal/acme/users/{ada.user.public_id}")
    assert database.count("account_links") == 0


def test_deletion_requires_email(ada: Any, bob: Any) -> None:
    path = f"/users/{bob.public_id}/delete"
    ada.get(path)
    assert "Impact" in ada.text and bob.public_id in ada.text and "each for 365 days" in ada.text
    assert ada.send(path, typed="ada@acme.example").status_code == 400
    ada.send(path, typed=bob.email)
    ada.follow()
    assert "User deleted" in ada.text and "bob@acme.example" not in ada.text
    assert ada.get(f"/users/{bob.public_id}").status_code == 404


def test_last_administrator_cannot_be_disabled_or_deleted(ada: Any) -> None:
    page = f"/users/{ada.user.public_id}"
    for path, fields in ((f"{page}/disable", {}), (f"{page}/delete", {"typed": ada.user.email})):
        ada.get(page)
        answer = ada.send(path, **fields)
        assert answer.status_code == 409 and "last administrator" in ada.text, path


def test_auditor_sees_user_without_buttons(acme: Any, bob: Any, portal_user: Callable[..., Any]) -> None:
    auditor = portal_user(acme, "auditor")
    page = auditor.get(f"/users/{bob.public_id}").text
    assert "/disable" not in page and "/delete" not in page and "/reset" not in page
    assert auditor.get(f"/users/{bob.public_id}/delete").status_code == 403
    developer = portal_user(acme, "developer")
    assert developer.get("/users").status_code == 403 and "/users" not in developer.get("/clients").text


def test_pages_do_not_offer_what_the_permissions_of_another_user_forbid(
    ada: Any, acme: Any, bob: Any, portal_user: Callable[..., Any]
) -> None:
    """A help desk may manage members, but not administrators: no button leads to a page that says no."""
    desk = ["organization:read", "users:read", "users:write", "admins:read", "admins:write", "roles:read"]
    ada.submit("/settings/permissions/new", key="desk", name="Desk", permissions=desk)
    desk_user = portal_user(acme, "desk")
    offered = [f"/{path}" for path in ("reset", "disable", "sign-out", "delete")]
    member, administrator = f"/users/{bob.public_id}", f"/users/{ada.user.public_id}"
    assert all(f"{member}{path}" in desk_user.get(member).text for path in offered[:2])
    page = desk_user.get(administrator).text
    assert not any(f"{administrator}{path}" in page for path in offered) and "not-manageable" in page
    for path in (*offered[1:], "/attributes", "/second-factors/reset"):
        assert desk_user.get(f"{administrator}{path}").status_code == 403, path
    team = desk_user.get("/administrators").text
    removable = re.findall(r'aria-label="Remove ([^"]+)"', team)
    assert ada.user.email in team and removable == [desk_user.user.email]


def test_times_are_in_the_time_zone_of_the_signed_in_user(
    app: Flask, ada: Any, make: Any, acme: Any, bob: Any, portal_user: Any
) -> None:
    operator = portal_user(make.root())
    for path in (f"/portal/acme/users/{bob.public_id}", "/organizations/acme/account/sessions"):
        assert re.search(r'title="\d+ \w+ \d{4}, [\d:]{8} UTC"', ada.http.get(path).text)
    with app.app_context():
        db.session.execute(update(User).values(profile={"zoneinfo": "Asia/Kolkata"}))
        db.session.commit()
    make.sign_in(bob, app.test_client())
    for browser, path in (
        (ada.http, f"/portal/acme/users/{bob.public_id}"),
        (operator.http, f"/portal/acme/users/{bob.public_id}"),
        (ada.http, "/organizations/acme/account/sessions"),
    ):
        page = browser.get(path).text
        shown = re.search(
            r'datetime="([^"]+)" title="(\d+ \w+ \d{4}), ([\d:]{8}) Asia/Kolkata">(\d+ \w+ \d{4}, [\d:]{5} IST)',
            page,
        )
        assert shown and " UTC" not in page, page
        local = datetime.fromisoformat(shown[1]) + timedelta(hours=5, minutes=30)
        assert shown[3] == f"{local:%H:%M:%S}"
