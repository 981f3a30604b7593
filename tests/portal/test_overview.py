"""The overview: a checklist for a new organization, then figures."""

from __future__ import annotations

import re
from typing import Any

from app.operations.store.usage_counters import counters


def test_new_organization_has_a_checklist(ada: Any) -> None:
    ada.get("")

    assert "Getting started" in ada.text
    assert "/portal/acme/clients/new" in ada.page.text
    assert "/portal/acme/administrators/new" in ada.page.text


def test_checklist_disappears_when_done(make: Any, acme: Any, ada: Any) -> None:
    make.user(acme, role="auditor")
    make.bearer(acme, "clients:read")

    ada.get("")

    assert "Getting started" not in ada.text
    assert "Newest clients" in ada.text and "Tokens issued" in ada.text
    linked = re.findall(r'<a href="([^"]*)" class="kpi"', ada.page.text)
    assert linked == ["/portal/acme/logs", "/portal/acme/users"]


def test_expiring_secret_needs_attention_if_it_is_used_after_its_replacement(
    make: Any, acme: Any, ada: Any
) -> None:
    client = make.machine(acme, name="Batch")
    ada.send(f"/clients/{client.client_id}/credentials/new", name="next", others="retire")
    assert "Nothing needs your attention." in ada.get("").text

    form = {"grant_type": "client_credentials"}
    app = ada.http.application
    assert app.test_client().post("/oauth/token", data=form, headers=client.basic).status_code == 200
    with app.app_context():
        counters.flush()

    assert "1 thing needs your attention." in ada.get("").text
    assert re.search("Secret .* of Batch expires .* Last used", ada.text)


def test_recent_changes_require_audit_permission(acme: Any, ada: Any, portal_user: Any) -> None:
    assert "Recent activity" in ada.get("").text

    assert "Recent activity" not in portal_user(acme, role="developer").get("").text


def test_member_who_can_register_clients_is_sent_to_them(make: Any, portal_user: Any) -> None:
    plain = portal_user(make.organization("plain"), role=None)
    assert plain.get("").status_code == 403
    settings = {"user_permissions": {"members_can_register_clients": True}}
    member = portal_user(make.organization("open", settings=settings), role=None)
    answer = member.get("")
    assert (answer.status_code, answer.location) == (303, "/portal/open/clients")
    assert member.get("/clients").status_code == 200
