"""Revoking widely in the portal: counts first, then the button, and the receipt."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from app.operations.store import clock
from tests.portal.conftest import Person
from tests.support.world_rows import granted


@pytest.fixture
def orchard(make: Any, acme: Any) -> Any:
    client = make.client(acme)
    with make.app.app_context():
        granted(client, make.user(acme, email="bob@example.com"))
    return client


def test_a_clients_tokens_are_counted_and_revoked(ada: Person, orchard: Any) -> None:
    ada.get(f"/clients/{orchard.client_id}/tokens")
    assert "Revoke all tokens…" in ada.text
    page = f"/revocations/new?client_id={orchard.client_id}"
    ada.get(page)
    assert "Revoke all tokens of this client?" in ada.text and "1 grant" in ada.text
    assert f"Orchard {orchard.client_id}" in ada.text
    chosen = {"client_id": orchard.client_id, "reason": "Laptop lost"}
    assert ada.send("/revocations/new", action="count", **chosen).status_code == 200
    ada.get(f"/clients/{orchard.client_id}/tokens")
    assert "bob@example.com" in ada.text
    ada.get(page)
    ada.send("/revocations/new", action="revoke", **chosen)
    ada.follow()
    assert "Revoked. What was issued before" in ada.text and "Laptop lost" in ada.text
    assert f"Client Orchard {orchard.client_id}" in ada.text
    ada.get(f"/clients/{orchard.client_id}/tokens")
    assert "No living grants" in ada.text
    ada.get("/revocations")
    assert f"Client Orchard {orchard.client_id}" in ada.text and ada.user.email in ada.text


def test_a_moment_in_the_past_is_counted_again(ada: Person, make: Any, orchard: Any) -> None:
    with make.app.app_context():
        past = clock.now() - timedelta(hours=1)
    ada.get("/revocations/new")
    ada.send("/revocations/new", action="count", issued_before=f"{past:%Y-%m-%dT%H:%M:%S}")
    assert "0 grants" in ada.text
    later = clock_text(past + timedelta(hours=3))
    answer = ada.send("/revocations/new", action="revoke", issued_before=later)
    assert answer.status_code == 400 and "is in the future" in ada.text


def clock_text(moment: Any) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%S}"


def test_everything_is_offered_to_who_may_and_ends_the_own_sign_in_if_asked(ada: Person) -> None:
    """PO-4: only for a recent sign-in; the page says beforehand that it ends one's own."""
    ada.get("/revocations")
    assert "Revoke everything" in ada.text
    ada.get("/revocations/new")
    assert "Revoke all tokens of Acme?" in ada.text
    ada.send("/revocations/new", action="count", include_sessions="1")
    assert "you will have to sign in again" in ada.text
    assert ada.send("/revocations/new", action="revoke", include_sessions="1").status_code == 303
    assert "/login" in ada.get("/revocations").headers["Location"]


def test_an_auditor_sees_receipts_and_no_button(person: Any, acme: Any, orchard: Any) -> None:
    auditor = person(acme, "auditor")
    auditor.get("/revocations")
    assert "Revoke everything" not in auditor.text and auditor.page.status_code == 200
    assert auditor.get("/revocations/new").status_code == 403


def test_one_sign_in_of_a_person_is_ended(ada: Person, make: Any, acme: Any) -> None:
    """SS-5: an administrator ends one sign-in, and the other stays."""
    bob = make.user(acme, email="bob@acme.example")
    browsers = [make.app.test_client() for _ in range(2)]
    for browser in browsers:
        make.sign_in(bob, browser)
    ada.get(f"/users/{bob.public_id}")
    [first, *_] = [line for line in ada.page.text.split('action="') if "/sessions/ses_" in line]
    action = first.split('"')[0]
    ada.send(action)
    ada.follow()
    assert "The sign-in is over" in ada.text
    page = f"/organizations/{acme.slug}/account/sessions"
    assert sorted(browser.get(page).status_code for browser in browsers) == [200, 303]
    assert ada.send(action).status_code == 404
