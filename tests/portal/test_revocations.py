"""Bulk revocation in the portal: the preview, the revocation and its receipt."""

from __future__ import annotations

import html
import re
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import update

from app.extensions import db
from app.models.user import User
from app.operations.store import clock
from tests.portal.conftest import PortalUser
from tests.support.world_rows import granted


@pytest.fixture
def orchard(make: Any, acme: Any) -> Any:
    client = make.client(acme)
    with make.app.app_context():
        granted(client, make.user(acme, email="bob@example.com"))
    return client


def test_tokens_of_client_are_previewed_and_revoked(ada: PortalUser, orchard: Any) -> None:
    ada.get(f"/clients/{orchard.client_id}/tokens")
    assert "Revoke all tokens" in ada.text
    page = f"/revocations/new?client_id={orchard.client_id}"
    ada.get(page)
    assert "Revoke all tokens of this client?" in ada.text and "1 grant" in ada.text
    assert f"Orchard {orchard.client_id}" in ada.text
    chosen = {"client_id": orchard.client_id, "reason": "Laptop lost"}
    assert ada.send("/revocations/new", count="1", **chosen).status_code == 200
    ada.get(f"/clients/{orchard.client_id}/tokens")
    assert "bob@example.com" in ada.text
    ada.get(page)
    ada.send("/revocations/new", revoke="1", **chosen)
    ada.follow()
    assert "Tokens revoked" in ada.text and "Laptop lost" in ada.text
    assert f"Client Orchard {orchard.client_id}" in ada.text
    links = re.findall(
        r'<a href="([^"]+)"', ada.page.text.partition('id="affected"')[2].partition("</section>")[0]
    )
    assert f"/portal/acme/clients/{orchard.client_id}/tokens" in links
    for link in links:
        assert ada.get(html.unescape(link)).status_code == 200
    ada.get(next(html.unescape(link) for link in links if "/audit?" in link))
    assert "Revoked tokens in bulk" in ada.text
    ada.get(f"/clients/{orchard.client_id}/tokens")
    assert "No active grants" in ada.text
    ada.get("/revocations")
    assert f"Client Orchard {orchard.client_id}" in ada.text and ada.user.email in ada.text


def test_receipt_for_a_user_names_the_clients_that_lost_tokens(ada: PortalUser, make: Any, acme: Any) -> None:
    bob = make.user(acme, email="bob@example.com")
    with make.app.app_context():
        granted(make.client(acme, name="Lost"), bob)
        granted(make.client(acme, name="Other"), make.user(acme))
    ada.get(f"/revocations/new?user_id={bob.public_id}")
    ada.submit("/revocations/new", revoke="1", user_id=bob.public_id)
    assert "Lost : tokens" in ada.text and "Other" not in ada.text
    assert f'href="/portal/acme/users/{bob.public_id}"' in ada.page.text


def test_preview_follows_cutoff_time(ada: PortalUser, make: Any, orchard: Any) -> None:
    with make.app.app_context():
        past = clock.now() - timedelta(hours=1)
    ada.get("/revocations/new")
    ada.send("/revocations/new", count="1", issued_before=f"{past:%Y-%m-%dT%H:%M:%S}")
    assert "0 grants" in ada.text
    # Times are those that the pages show.
    with make.app.app_context():
        db.session.execute(update(User).values(profile={"zoneinfo": "Asia/Kolkata"}))
        db.session.commit()
    local = past.astimezone(ZoneInfo("Asia/Kolkata"))
    ada.send("/revocations/new", count="1", issued_before=format_time(local))
    assert "0 grants" in ada.text and "Issued before (Asia/Kolkata)" in ada.text
    later = format_time(local + timedelta(hours=3))
    answer = ada.send("/revocations/new", revoke="1", issued_before=later)
    assert answer.status_code == 400 and "is in the future" in ada.text


def format_time(moment: Any) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%S}"


def test_revoking_everything_can_end_own_session(ada: PortalUser) -> None:
    """PO-4: requires a fresh sign-in, and warns that the own session ends."""
    ada.get("/revocations")
    assert "Revoke everything" in ada.text
    ada.get("/revocations/new")
    assert "Revoke all tokens of Acme?" in ada.text
    ada.send("/revocations/new", count="1", include_sessions="1")
    assert "You would then have to sign in again" in ada.text
    assert ada.send("/revocations/new", revoke="1", include_sessions="1").status_code == 303
    assert "/login" in ada.get("/revocations").headers["Location"]


def test_auditor_sees_receipts_without_button(portal_user: Any, acme: Any, orchard: Any) -> None:
    auditor = portal_user(acme, "auditor")
    auditor.get("/revocations")
    assert "Revoke everything" not in auditor.text and auditor.page.status_code == 200
    assert auditor.get("/revocations/new").status_code == 403


def test_one_session_of_user_is_ended(ada: PortalUser, make: Any, acme: Any) -> None:
    """SS-5: an administrator ends one session, and the other stays."""
    bob = make.user(acme, email="bob@acme.example")
    browsers = [make.app.test_client() for _ in range(2)]
    for browser in browsers:
        make.sign_in(bob, browser)
    ada.get(f"/users/{bob.public_id}")
    [first, *_] = [line for line in ada.page.text.split('href="') if "/sessions/ses_" in line]
    action = first.split('"')[0]
    ada.get(action)
    assert "bob@acme.example is signed out of" in ada.text and "1 other session will stay" in ada.text
    ada.submit(action)
    assert "Session ended" in ada.text
    page = f"/organizations/{acme.slug}/account/sessions"
    assert sorted(browser.get(page).status_code for browser in browsers) == [200, 303]
    assert ada.send(action).status_code == ada.get(action).status_code == 404
