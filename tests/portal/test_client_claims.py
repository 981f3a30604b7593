"""Roles and claims of a client in the portal."""

from __future__ import annotations

import re
from typing import Any

import pytest

from app.operations.organizations.settings import update_settings
from app.operations.store import rows as rows_of_lists


def test_claims_are_mapped_and_refused_names_are_explained(ada: Any, make: Any) -> None:
    attribute = {"key": "department", "name": "Department", "type": "string"}
    acme = ada.user.organization
    with ada.http.application.app_context():
        update_settings(make.actor(acme), "acme", {"user_profile": {"attributes": [attribute]}})
    path = f"/clients/{make.client(acme).client_id}/claims"
    ada.get(path)
    version = ada.hidden("version")
    row = {"claim_mappings-0-source": "attributes.department", "claim_mappings-0-targets": ["userinfo"]}
    reserved = ada.send(path, version=version, **row, **{"claim_mappings-0-claim": "iss"})
    assert reserved.status_code == 400 and "Line 1: The claim iss is reserved" in ada.text
    assert ada.send(path, version=version, **row, **{"claim_mappings-0-claim": "email"}).status_code == 400
    ada.send(path, version=version, **row, **{"claim_mappings-0-claim": "dept"})
    ada.follow()
    assert "Saved" in ada.text and 'value="dept"' in ada.page.text
    boxes = re.findall(r"<input[^>]*mappings-0-targets[^>]*>", ada.page.text)
    assert [" checked" in box for box in boxes] == ['"userinfo"' in box for box in boxes]


def test_roles_are_declared_assigned_and_removed(
    ada: Any, make: Any, acme: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = make.client(acme)
    bob = make.user(acme, email="bob@acme.example")
    path = f"/clients/{client.client_id}/roles"
    ada.get(path)
    assert "Add a role above" in ada.text
    rows = {"app_roles-0-key": "editor", "app_roles-0-name": "Editor", "app_roles-1-key": ""}
    ada.send(path, version=ada.hidden("version"), **rows)
    ada.follow()
    assert "Saved" in ada.text and "Nobody has a role" in ada.text
    version = ada.hidden("version")
    wrong = ada.send(path, version=version, **{"app_roles-0-key": "a b", "app_roles-1-key": "x"})
    assert wrong.status_code == 400 and "Line 1: Use 1 to 64 letters" in ada.text
    assert ada.send(f"{path}/assign", role="editor").status_code == 400
    assert ada.send(f"{path}/assign", role="owner", email=bob.email).status_code == 400
    assert "declares no such role" in ada.text
    ada.send(f"{path}/assign", role="editor", email=bob.email)
    ada.follow()
    assert "Role assigned" in ada.text and bob.email in ada.text
    assert ada.send(f"{path}/assign", role="editor", email=bob.email).status_code == 409
    ada.get("/groups/new")
    ada.send("/groups/new", name="Pickers")
    group = re.findall(r"grp_[0-9a-z]{26}", ada.page.headers["Location"])[0]
    ada.get(path)
    ada.send(f"{path}/assign", role="editor", group_id=group)
    ada.follow()
    assert ada.page.text.count("/remove") == 2
    with monkeypatch.context() as short:
        short.setattr(rows_of_lists, "MAX_LIMIT", 1)
        # The page of an error has the links of the list, although its own path takes only POST.
        assert ada.send(f"{path}/assign", role="editor", email=bob.email).status_code == 409
        [further] = re.findall(r'href="/portal/acme(/[^"]+cursor=[^"]+)"', ada.page.text)
        assert ada.get(further).status_code == 200 and ada.page.text.count("/remove") == 1
    ada.get(path)
    ada.send(re.findall(r"/clients/[^\"]+/roles/ara_[0-9a-z]+/remove", ada.page.text)[0])
    ada.follow()
    assert "Role removed" in ada.text
