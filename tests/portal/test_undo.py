"""The notice after an action that can be reversed has a button that does so, once, for the actor's permission."""

from __future__ import annotations

from typing import Any

import pytest

from tests.portal.conftest import PortalUser


@pytest.fixture
def bob(make: Any, acme: Any) -> Any:
    return make.user(acme, email="bob@acme.example", name="Bob")


def test_disabled_user_is_enabled_again(ada: PortalUser, bob: Any, database: Any) -> None:
    path = f"/users/{bob.public_id}"
    ada.submit(f"{path}/disable")
    assert "Undo" in ada.text and "Disabled" in ada.text
    ada.undo()
    assert "User enabled" in ada.text and "Undo" not in ada.text
    actions = "SELECT CAST(action AS CHAR) FROM audit_events ORDER BY id DESC LIMIT 2"
    assert [row[0] for row in database.query(actions)] == ["user.enabled", "user.disabled"]
    ada.submit(f"{path}/disable")
    assert "Undo" not in " ".join(ada.get(path).text.split("</main>"))


def test_suspended_organization_is_resumed(make: Any, acme: Any, portal_user: Any) -> None:
    operator = portal_user(make.root())
    operator.submit(f"/organizations/{acme.slug}/suspend")
    operator.undo()
    assert "Organization resumed" in operator.text


def test_removed_group_member_and_role_are_added_again(
    ada: PortalUser, make: Any, acme: Any, bob: Any
) -> None:
    ada.submit("/groups/new", name="Pickers")
    group = ada.page.request.path if ada.page else ""
    ada.submit(group, email=bob.email)
    ada.submit(f"{group}/members/{bob.public_id}/remove", email=bob.email)
    assert "This group has no members yet" in ada.text
    ada.undo()
    assert "Member added" in ada.text and bob.email in ada.text


def test_undo_that_is_too_long_for_a_cookie_is_not_offered(ada: PortalUser, make: Any, acme: Any) -> None:
    uris = [f"https://orchard.example/{number}/{'x' * 200}" for number in range(12)]
    client = make.client(acme, redirect_uris=uris)
    path = f"/clients/{client.client_id}/redirects"
    ada.get(path)
    ada.submit(path, version=ada.hidden("version"), redirect_uris=uris[0])
    assert "Saved" in ada.text and "Undo" not in ada.text


def test_removed_redirect_uri_is_added_again(ada: PortalUser, make: Any, acme: Any) -> None:
    uris = ["https://orchard.example/a", "https://orchard.example/b"]
    client = make.client(acme, redirect_uris=uris)
    path = f"/clients/{client.client_id}/redirects"
    ada.get(path)
    ada.submit(path, version=ada.hidden("version"), redirect_uris=uris[0])
    assert uris[1] not in ada.text
    ada.undo()
    assert uris[0] in ada.text and uris[1] in ada.text
    ada.get(path)
    ada.submit(
        path, version=ada.hidden("version"), redirect_uris="\n".join([*uris, "https://orchard.example/c"])
    )
    assert "Undo" not in ada.text
