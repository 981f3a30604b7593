"""Adding, inviting and removing administrators; the last one cannot be removed."""

from __future__ import annotations

import re
from typing import Any

from flask import Flask

from app.operations.directory.users import create_user
from app.rules.identifiers import public_id

ADMIN = re.compile(r"/administrators/(adm_[a-z0-9]+)/remove")
INVITATION = re.compile(r"/administrators/invitations/(inv_[a-z0-9]+)/revoke")

# Enough for the pages of roles and administrators.
STAFF = ["settings:read", "roles:read", "roles:write", "admins:read", "admins:write"]


def test_existing_user_gets_role_immediately(make: Any, acme: Any, ada: Any) -> None:
    bob = make.user(acme, email="bob@acme.example", name="Bob")

    ada.send("/administrators/new", email=bob.email, role="auditor")
    ada.follow()

    assert "Administrator added" in ada.text
    assert "Bob" in ada.text and "Auditor" in ada.text


def test_user_page_links_to_prefilled_role_form(make: Any, acme: Any, ada: Any) -> None:
    bob = make.user(acme, email="bob+1@acme.example", name="Bob")

    shown = ada.get(f"/users/{bob.public_id}").text
    link = re.search(r'href="[^"]*(/administrators/new\?email=[^"]+)"', shown)

    assert link and 'value="bob+1@acme.example"' in ada.get(link[1]).text


def test_unknown_email_is_invited_and_link_is_shown_once(ada: Any) -> None:
    answer = ada.submit("/administrators/new", email="new@acme.example", name="New", role="developer")

    link = re.search(r"https?://[^<]+/organizations/acme/invite/gth_iv_[A-Za-z0-9_-]+", answer.text)
    assert link and answer.headers["Cache-Control"] == "no-store"
    assert link[0] not in ada.get("/administrators").text
    assert "If the person has not joined yet, invite them again" in ada.text
    assert "new@acme.example" in ada.text


def test_invitation_is_revoked(ada: Any) -> None:
    ada.send("/administrators/new", email="new@acme.example", role="developer")
    ada.get("/administrators")
    found = INVITATION.search(ada.page.text)
    assert found

    ada.send(f"/administrators/invitations/{found[1]}/revoke")
    ada.follow()

    assert "Invitation revoked" in ada.text and "new@acme.example" not in ada.text


def test_invalid_values_show_errors_at_their_fields(ada: Any) -> None:
    answer = ada.send("/administrators/new", email="nobody", role="wizard")
    too_long = ada.send("/administrators/new", email="nobody", role="wizard", name="x" * 200)

    assert answer.status_code == too_long.status_code == 400
    for name in ("email", "role"):
        assert f'href="#{name}"' in answer.text
    assert 'href="#name"' in too_long.text
    assert 'value="nobody"' in answer.text


def test_removal_requires_confirmation(make: Any, acme: Any, ada: Any) -> None:
    make.user(acme, email="bob@acme.example", name="Bob", role="auditor")
    ada.get("/administrators")
    bob = ADMIN.findall(ada.page.text)[-1]
    ada.get(f"/administrators/{bob}/remove")
    assert "Impact" in ada.text

    ada.send(f"/administrators/{bob}/remove")
    ada.follow()

    assert "Administrator removed" in ada.text and "Bob" not in ada.text


def test_last_administrator_cannot_be_removed(ada: Any) -> None:
    ada.get("/administrators")
    (only,) = ADMIN.findall(ada.page.text)
    ada.get(f"/administrators/{only}/remove")
    assert "This is your own role" in ada.text

    answer = ada.send(f"/administrators/{only}/remove")

    assert answer.status_code == 409 and "last administrator" in ada.text
    assert ada.get("/administrators").status_code == 200


def test_removed_administrator_loses_access_on_next_request(
    make: Any, acme: Any, ada: Any, portal_user: Any
) -> None:
    bob = portal_user(acme, email="bob@acme.example")
    assert bob.get("/settings/general").status_code == 200
    ada.get("/administrators")
    ada.send(f"/administrators/{ADMIN.findall(ada.page.text)[-1]}/remove")

    assert bob.get("/settings/general").status_code == 403


def test_auditor_sees_list_without_buttons(acme: Any, ada: Any, portal_user: Any) -> None:
    auditor = portal_user(acme, role="auditor")

    auditor.get("/administrators")

    assert ada.user.email in auditor.text
    assert "/remove" not in auditor.page.text and "/administrators/new" not in auditor.page.text


def test_user_with_unverified_email_is_added_by_id(app: Flask, make: Any, acme: Any, ada: Any) -> None:
    with app.app_context():
        bob = public_id("usr", create_user(acme.id, email="bob@acme.example", name="Bob"))

    ada.send("/administrators/new", email="bob@acme.example", role="auditor")
    assert bob in ada.text

    ada.send("/administrators/new", email=bob, role="auditor")
    ada.follow()
    assert "bob@acme.example" in ada.text


def test_invited_user_is_listed_with_users_only(ada: Any) -> None:
    assert "Invite user" in ada.get("/users").text
    answer = ada.submit("/users/invite", email="new@acme.example", name="New")
    assert answer.request.path == "/portal/acme/users" and "/organizations/acme/invite/" in answer.text
    assert "as Member" not in ada.text

    assert "new@acme.example" not in ada.get("/administrators").text
    found = INVITATION.search(ada.get("/users").text)
    assert found and "new@acme.example" in ada.text
    ada.send(f"/administrators/invitations/{found[1]}/revoke")
    ada.follow()
    assert ada.page.request.path == "/portal/acme/users" and "new@acme.example" not in ada.text


def test_invitation_of_existing_user_is_rejected_at_its_field(ada: Any) -> None:
    answer = ada.send("/users/invite", email=ada.user.email)
    assert answer.status_code == 409 and "already a user" in ada.text and 'href="#email"' in answer.text


def test_member_is_not_listed_as_administrator(make: Any, acme: Any, ada: Any) -> None:
    make.user(acme, email="bob@acme.example", name="Bob", role="member")
    assert "Bob" not in ada.get("/administrators").text
    assert "Bob" in ada.get("/users").text
    assert 'value="member"' not in ada.get("/administrators/new").text


def test_permission_that_the_administrator_lacks_is_an_error_at_its_field(
    acme: Any, ada: Any, portal_user: Any
) -> None:
    ada.submit("/settings/permissions/new", key="staff", name="Staff", permissions=STAFF)
    grace = portal_user(acme, "staff")
    answer = grace.send(
        "/settings/permissions/new", key="sly", name="Sly", permissions=["users:read", "clients:write"]
    )
    assert answer.status_code == 403 and 'value="Sly"' in answer.text
    assert "You can only grant or remove permissions that you have." in grace.text
    grace.get("/settings/permissions/staff")
    answer = grace.send(
        "/settings/permissions/staff",
        version=grace.hidden("version"),
        name="Crew",
        permissions=["users:read"],
    )
    assert answer.status_code == 403 and 'value="Crew"' in answer.text
    answer = grace.send("/administrators/new", email="new@example.com", role="admin")
    assert answer.status_code == 403 and 'value="new@example.com"' in answer.text
    assert "You can't manage the role admin" in grace.text
