"""Groups in the portal: creating, changing and deleting them, and their members."""

from __future__ import annotations

import re
from typing import Any

from app.operations.directory.users import create_user
from app.rules.identifiers import public_id


def test_group_is_created_filled_changed_and_deleted(ada: Any, make: Any, acme: Any) -> None:
    bob = make.user(acme, email="bob@acme.example", name="Bob")
    ada.get("/groups")
    assert "No groups yet" in ada.text
    assert ada.send("/groups/new", name="").status_code == 400
    ada.send("/groups/new", name="Pickers", description="Those who pick.")
    path = re.sub(r".*/portal/acme|\?.*", "", ada.page.headers["Location"])
    ada.follow()
    assert "Group created" in ada.text and "no members yet" in ada.text
    assert ada.send(path, email="nobody@acme.example").status_code == 400
    assert "There is no such user" in ada.text
    ada.send(path, email=bob.email)
    ada.follow()
    assert "Member added" in ada.text and "Bob" in ada.text
    assert ada.send(path, email=bob.email).status_code == 409
    ada.get(f"{path}?q=BO")
    assert bob.email in ada.text
    ada.get(f"{path}?q=nobody")
    assert "No members found" in ada.text and bob.email not in ada.text
    ada.get(f"/users/{bob.public_id}")
    assert "Pickers" in ada.text
    ada.get(f"{path}/edit")
    version = ada.hidden("version")
    ada.send(f"{path}/edit", version=version, name="Gatherers", description="")
    assert ada.follow().status_code == 200 and "Gatherers" in ada.text
    assert ada.send(f"{path}/edit", version=version, name="Others").status_code == 412
    assert "Someone changed this group" in ada.text
    ada.get("/groups?q=gather")
    assert "Gatherers" in ada.text
    ada.get(path)
    ada.send(f"{path}/members/{bob.public_id}/remove")
    ada.follow()
    assert "Member removed" in ada.text
    ada.send(f"{path}/delete")
    ada.follow()
    assert "Group deleted" in ada.text and "No groups yet" in ada.text


def test_user_with_an_unproven_email_is_added_by_id(ada: Any, make: Any, acme: Any) -> None:
    """OI-5."""
    with ada.http.application.app_context():
        user_id = public_id("usr", create_user(acme.id, email="eve@acme.example", made_unproven=True))
    ada.submit("/groups/new", name="Pickers")
    group = ada.page.request.path.removeprefix("/portal/acme")
    ada.get(group)
    assert ada.send(group, email="eve@acme.example").status_code == 409
    assert user_id in ada.text
    ada.submit(group, email=user_id)
    assert "Member added" in ada.text
    ada.submit(f"{group}/members/{user_id}/remove")
    ada.undo()
    assert "Member added" in ada.text

    path = f"/clients/{make.client(acme, app_roles=[{'key': 'owner'}]).client_id}/roles"
    ada.get(path)
    assert ada.send(f"{path}/assign", role="owner", email="eve@acme.example").status_code == 409
    ada.submit(f"{path}/assign", role="owner", email=user_id)
    assert "Role assigned" in ada.text
