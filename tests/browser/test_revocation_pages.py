"""Bulk revocation and rotations in Chromium."""

from __future__ import annotations

from typing import Any

import pytest

from app.operations.clients.credentials import rotate_credential
from app.operations.tokens.bulk_revocation import bulk_revoke
from tests.browser.test_portal_pages import _look_at, _sign_in
from tests.factories import Factory
from tests.support.browser import NARROW, watched
from tests.support.world_rows import granted

pytestmark = [pytest.mark.live, pytest.mark.browser]


@pytest.fixture
def ada(make: Factory, acme: Any) -> Any:
    return make.user(acme, role="admin")


@pytest.fixture
def orchard(make: Factory, acme: Any) -> Any:
    return make.client(acme, name="An orchard with quite a long name that has to wrap somewhere")


def test_tokens_of_client_are_revoked(
    chromium: Any, live_server: Any, make: Factory, acme: Any, ada: Any, orchard: Any
) -> None:
    with live_server.app.app_context():
        granted(orchard, make.user(acme))
    with watched(chromium) as context:
        page = _sign_in(context, make, ada, live_server).new_page()
        page.goto(f"{live_server.url}/portal/{acme.slug}/clients/{orchard.client_id}/tokens")
        page.click("text=Revoke all tokens")
        assert "1 grant" in page.inner_text("#counts")
        page.fill("#issued_before", "2020-01-01T00:00:00")
        page.click("text=Update preview")
        assert "0 grants" in page.inner_text("#counts")
        page.fill("#issued_before", "")
        page.fill("#reason", "Laptop lost")
        page.click("main button:has-text('Revoke')")
        assert "Tokens revoked." in page.inner_text("[role=status]")
        assert "Laptop lost" in page.inner_text("main")


def test_rotation_is_finished(
    chromium: Any, live_server: Any, make: Factory, acme: Any, ada: Any, orchard: Any
) -> None:
    with live_server.app.app_context():
        rotate_credential(make.actor(acme), orchard.client_id)
    with watched(chromium) as context:
        page = _sign_in(context, make, ada, live_server).new_page()
        page.goto(f"{live_server.url}/portal/{acme.slug}/clients/{orchard.client_id}/credentials")
        page.click("text=View rotation")
        assert "Neither secret has been used yet" in page.inner_text("#verdict")
        page.select_option("#expires_in_seconds", "604800")
        page.click("button:has-text('Change expiry')")
        assert "Rotation updated" in page.inner_text("[role=status]")
        page.check("#finish-revoke")
        page.click("button:has-text('Revoke old secret')")
        assert "Rotation finished" in page.inner_text("[role=status]")


def test_every_page_is_accessible_in_every_look(
    chromium: Any, live_server: Any, make: Factory, acme: Any, ada: Any, orchard: Any
) -> None:
    user = make.user(acme, email=f"somebody.with.a.long.address@{acme.slug}.subsidiary.example")
    with live_server.app.app_context():
        rotate_credential(make.actor(acme), orchard.client_id)
        order = {"client_id": orchard.client_id, "reason": "A laptop was lost on the train to Edinburgh"}
        receipt = bulk_revoke(make.actor(acme), acme.slug, order).receipt.public_id
    client = f"/clients/{orchard.client_id}"
    paths = [
        "/revocations",
        f"/revocations/{receipt}",
        "/revocations/new",
        f"/revocations/new?client_id={orchard.client_id}",
        f"/revocations/new?user_id={user.public_id}",
        f"{client}/credentials/rotation",
        f"{client}/credentials",
        f"{client}/credentials/new",
    ]
    with watched(chromium, locale="de", **NARROW) as context:
        page = _sign_in(context, make, ada, live_server).new_page()
        _look_at(page, live_server.url, acme.slug, paths)
