"""Users in the portal: found, looked at, disabled, signed out, given a link, deleted."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask

from app.operations.sign_in.sign_in import SignedIn, sign_in
from tests.factories import PASSWORD


@pytest.fixture
def bob(make: Any, acme: Any) -> Any:
    return make.user(acme, email="bob@acme.example", name="Bob")


def test_people_are_found_by_name_status_and_role(ada: Any, make: Any, acme: Any, bob: Any) -> None:
    make.user(acme, email="cleo@acme.example", name="Cleo", role="auditor")
    make.user(make.organization("globex"), email="dora@globex.example", name="Dora")
    ada.get("/users")
    assert "Bob" in ada.text and "Cleo" in ada.text and "Dora" not in ada.text
    ada.get("/users?q=bo")
    assert "Bob" in ada.text and "Cleo" not in ada.text
    ada.get("/users?role=auditor")
    assert "Cleo" in ada.text and "Bob" not in ada.text
    ada.get("/users?status=disabled")
    assert "Nobody matches" in ada.text
    ada.get("/users?status=pope&role=pope&cursor=x")
    assert "Bob" in ada.text and "Cleo" in ada.text


def test_a_person_is_disabled_and_let_in_again(app: Flask, ada: Any, make: Any, acme: Any, bob: Any) -> None:
    make.sign_in(bob)
    ada.get(f"/users/{bob.public_id}")
    assert "bob@acme.example" in ada.text and "last active just now" in ada.text
    ada.send(f"/users/{bob.public_id}/disable")
    ada.follow()
    assert "The user is disabled" in ada.text and "Signed in nowhere" in ada.text
    with app.app_context():
        assert not isinstance(sign_in(acme.id, bob.email, PASSWORD), SignedIn)
    ada.send(f"/users/{bob.public_id}/enable")
    ada.follow()
    with app.app_context():
        assert isinstance(sign_in(acme.id, bob.email, PASSWORD), SignedIn)


def test_signing_somebody_out_keeps_the_account(ada: Any, make: Any, bob: Any) -> None:
    make.sign_in(bob)
    ada.get(f"/users/{bob.public_id}")
    ada.send(f"/users/{bob.public_id}/sign-out")
    ada.follow()
    assert "signed out everywhere" in ada.text and "Active" in ada.text and "Signed in nowhere" in ada.text


def test_the_reset_link_is_shown_in_the_answer_alone(ada: Any, bob: Any) -> None:
    """PW-4: a link to hand over, never a password; on no other page and in no cache."""
    ada.get(f"/users/{bob.public_id}")
    answer = ada.send(f"/users/{bob.public_id}/reset")
    link = re.search(r"https?://[^<]+/organizations/acme/reset/gth_pw_[A-Za-z0-9_-]+", answer.text)
    assert link and answer.headers["Cache-Control"] == "no-store"
    assert link[0] not in ada.get(f"/users/{bob.public_id}").text


def test_deleting_says_first_and_wants_the_address_typed(ada: Any, bob: Any) -> None:
    path = f"/users/{bob.public_id}/delete"
    ada.get(path)
    assert "What will stop working" in ada.text and bob.public_id in ada.text
    assert ada.send(path, email="ada@acme.example").status_code == 400
    ada.send(path, email=bob.email)
    ada.follow()
    assert "The user is deleted" in ada.text and "bob@acme.example" not in ada.text
    assert ada.get(f"/users/{bob.public_id}").status_code == 404


def test_the_last_administrator_is_told_so(ada: Any) -> None:
    page = f"/users/{ada.user.public_id}"
    for path, fields in ((f"{page}/disable", {}), (f"{page}/delete", {"email": ada.user.email})):
        ada.get(page)
        answer = ada.send(path, **fields)
        assert answer.status_code == 409 and "last administrator" in ada.text, path


def test_who_may_only_read_sees_no_button(acme: Any, bob: Any, person: Callable[..., Any]) -> None:
    auditor = person(acme, "auditor")
    page = auditor.get(f"/users/{bob.public_id}").text
    assert "/disable" not in page and "/delete" not in page and "/reset" not in page
    assert auditor.get(f"/users/{bob.public_id}/delete").status_code == 403
    developer = person(acme, "developer")
    assert developer.get("/users").status_code == 403 and "/users" not in developer.get("/clients").text
