"""The first page: a checklist while little stands, then figures."""

from __future__ import annotations

from typing import Any


def test_new_organization_has_a_checklist(ada: Any) -> None:
    ada.get("")

    assert "Getting started" in ada.text
    assert "/portal/acme/clients/new" in ada.page.text
    assert "/portal/acme/administrators/new" in ada.page.text


def test_checklist_goes_when_all_is_done(make: Any, acme: Any, ada: Any) -> None:
    make.user(acme, role="auditor")
    make.bearer(acme, "clients:read")

    ada.get("")

    assert "Getting started" not in ada.text
    assert "Clients 1" in ada.text and "Tokens, last 24 hours 1" in ada.text


def test_secret_that_ends_soon_needs_attention(make: Any, acme: Any, ada: Any) -> None:
    client = make.client(acme)
    ada.send(f"/clients/{client.client_id}/credentials/new", name="next", others="retire")

    ada.get("")

    assert "Needs attention" in ada.text and "Orchard" in ada.text


def test_audit_log_is_shown_to_who_may_read_it(acme: Any, ada: Any, person: Any) -> None:
    assert "What happened" in ada.get("").text

    assert "What happened" not in person(acme, role="developer").get("").text
