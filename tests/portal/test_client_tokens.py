"""The Tokens tab of a client: its grants and access tokens."""

from __future__ import annotations

from typing import Any

import pytest

from app.rules.identifiers import new_id, public_id
from tests.portal.conftest import PortalUser
from tests.support.world_rows import granted, issued


@pytest.fixture
def orchard(make: Any, acme: Any) -> Any:
    return make.client(acme)


@pytest.fixture
def allowed(make: Any, acme: Any, orchard: Any) -> str:
    """Return the ID of a grant that Bob gave to the client."""
    with make.app.app_context():
        return granted(orchard, make.user(acme, email="bob@example.com"))


def test_grant_is_listed_and_revoked(ada: PortalUser, orchard: Any, allowed: str) -> None:
    tab = f"/clients/{orchard.client_id}/tokens"
    ada.get(tab)
    assert "bob@example.com" in ada.text and "openid" in ada.text
    ada.send(f"{tab}/{allowed}/revoke")
    ada.follow()
    assert "Grant revoked" in ada.text and "No active grants" in ada.text
    ada.get("/audit?action=grant.revoked")
    assert "revoked a user's grant to a client" in ada.text
    assert allowed in ada.text and ada.user.email in ada.text


def test_grant_of_another_client_is_not_found(
    ada: PortalUser, make: Any, acme: Any, orchard: Any, allowed: str
) -> None:
    other = make.client(acme)
    ada.get(f"/clients/{orchard.client_id}/tokens")
    assert ada.send(f"/clients/{other.client_id}/tokens/{allowed}/revoke").status_code == 404
    ada.get(f"/clients/{orchard.client_id}/tokens")
    absent = public_id("grt", new_id())
    assert ada.send(f"/clients/{orchard.client_id}/tokens/{absent}/revoke").status_code == 404
    ada.get(f"/clients/{orchard.client_id}/tokens")
    assert "bob@example.com" in ada.text


def test_auditor_sees_grants_without_button(
    portal_user: Any, acme: Any, orchard: Any, allowed: str, ada: PortalUser
) -> None:
    auditor = portal_user(acme, "auditor")
    auditor.get(f"/clients/{orchard.client_id}/tokens")
    assert "bob@example.com" in auditor.text and "/revoke" not in auditor.page.text
    auditor.get("/clients")
    assert auditor.send(f"/clients/{orchard.client_id}/tokens/{allowed}/revoke").status_code == 403
    ada.get(f"/clients/{orchard.client_id}/tokens")
    assert "bob@example.com" in ada.text


def test_developer_revokes_grants_of_own_client(make: Any, portal_user: Any, acme: Any) -> None:
    grace = portal_user(acme, "developer")
    with make.app.app_context():
        own = make.client(acme, by=make.actor(acme, user=grace.user))
        grant = granted(own, make.user(acme, email="bob@example.com"))
    grace.get(f"/clients/{own.client_id}/tokens")
    assert "bob@example.com" in grace.text
    grace.send(f"/clients/{own.client_id}/tokens/{grant}/revoke")
    assert "No active grants" in (grace.follow() and grace.text)


def test_access_token_without_user_is_listed_and_revoked(
    ada: PortalUser, make: Any, acme: Any, orchard: Any
) -> None:
    with make.app.app_context():
        token, of_another = issued(orchard), issued(make.client(acme))
    here = f"/clients/{orchard.client_id}/tokens/access"
    ada.get(here)
    assert "None (client credentials)" in ada.text
    assert ada.send(f"{here}/{of_another}/revoke").status_code == 404
    ada.get(here)
    ada.send(f"{here}/{token}/revoke")
    ada.follow()
    assert "Access token revoked" in ada.text and "No active access tokens" in ada.text
