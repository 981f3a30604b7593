"""Groups in the portal: creating, changing and deleting them, and their members."""

from __future__ import annotations

import re
from typing import Any


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
