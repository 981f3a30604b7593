"""Administrators by forms: added, invited, removed, and never the last one."""

from __future__ import annotations

import re
from typing import Any

from flask import Flask

from app.operations.directory.users import create_user
from app.rules.identifiers import public_id

ADMIN = re.compile(r"/administrators/(adm_[a-z0-9]+)/remove")
INVITATION = re.compile(r"/administrators/invitations/(inv_[a-z0-9]+)/withdraw")


def test_known_person_gets_the_role_at_once(make: Any, acme: Any, ada: Any) -> None:
    bob = make.user(acme, email="bob@acme.example", name="Bob")

    ada.send("/administrators/new", email=bob.email, role="auditor")
    ada.follow()

    assert "The administrator is added" in ada.text
    assert "Bob" in ada.text and "Auditor" in ada.text


def test_page_of_a_user_leads_to_a_role_for_them(make: Any, acme: Any, ada: Any) -> None:
    bob = make.user(acme, email="bob+1@acme.example", name="Bob")

    shown = ada.get(f"/users/{bob.public_id}").text
    link = re.search(r'href="[^"]*(/administrators/new\?email=[^"]+)"', shown)

    assert link and 'value="bob+1@acme.example"' in ada.get(link[1]).text


def test_unknown_address_is_invited_and_the_link_is_shown_once(ada: Any) -> None:
    answer = ada.send("/administrators/new", email="new@acme.example", name="New", role="developer")

    assert answer.status_code == 200
    link = re.search(r"https?://[^<]+/organizations/acme/invite/gth_iv_[A-Za-z0-9_-]+", answer.text)
    assert link and answer.headers["Cache-Control"] == "no-store"
    assert link[0] not in ada.get("/administrators").text
    assert "new@acme.example" in ada.text


def test_invitation_is_withdrawn(ada: Any) -> None:
    ada.send("/administrators/new", email="new@acme.example", role="developer")
    ada.get("/administrators")
    found = INVITATION.search(ada.page.text)
    assert found

    ada.send(f"/administrators/invitations/{found[1]}/withdraw")
    ada.follow()

    assert "The invitation is withdrawn" in ada.text and "new@acme.example" not in ada.text


def test_errors_land_at_their_field(ada: Any) -> None:
    answer = ada.send("/administrators/new", email="nobody", role="wizard", name="x" * 200)

    assert answer.status_code == 400
    for name in ("email", "role", "name"):
        assert f'href="#{name}"' in answer.text
    assert 'value="nobody"' in answer.text


def test_removing_says_first_and_then_does(make: Any, acme: Any, ada: Any) -> None:
    make.user(acme, email="bob@acme.example", name="Bob", role="auditor")
    ada.get("/administrators")
    bob = ADMIN.findall(ada.page.text)[-1]
    ada.get(f"/administrators/{bob}/remove")
    assert "What will stop working" in ada.text

    ada.send(f"/administrators/{bob}/remove")
    ada.follow()

    assert "The administrator is removed" in ada.text and "Bob" not in ada.text


def test_last_administrator_stays(ada: Any) -> None:
    ada.get("/administrators")
    (only,) = ADMIN.findall(ada.page.text)
    ada.get(f"/administrators/{only}/remove")
    assert "This is your own role" in ada.text

    answer = ada.send(f"/administrators/{only}/remove")

    assert answer.status_code == 409 and "This cannot be done" in ada.text
    assert ada.get("/administrators").status_code == 200


def test_removal_counts_at_the_next_click(make: Any, acme: Any, ada: Any, person: Any) -> None:
    bob = person(acme, email="bob@acme.example")
    assert bob.get("/settings").status_code == 200
    ada.get("/administrators")
    ada.send(f"/administrators/{ADMIN.findall(ada.page.text)[-1]}/remove")

    assert bob.get("/settings").status_code == 403


def test_auditor_sees_the_list_and_no_buttons(acme: Any, ada: Any, person: Any) -> None:
    auditor = person(acme, role="auditor")

    auditor.get("/administrators")

    assert ada.user.email in auditor.text
    assert "/remove" not in auditor.page.text and "/administrators/new" not in auditor.page.text


def test_somebody_whose_address_is_unconfirmed_is_named_by_id(
    app: Flask, make: Any, acme: Any, ada: Any
) -> None:
    with app.app_context():
        bob = public_id("usr", create_user(acme.id, email="bob@acme.example", name="Bob"))

    ada.send("/administrators/new", email="bob@acme.example", role="auditor")
    assert bob in ada.text

    ada.send("/administrators/new", email=bob, role="auditor")
    ada.follow()
    assert "bob@acme.example" in ada.text
