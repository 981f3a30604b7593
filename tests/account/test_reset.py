"""The page of a reset link."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask

from app.operations.users.password_resets import issue_reset_link
from tests.account.conftest import Visitor
from tests.factories import PASSWORD
from tests.support.applications import BASE_URL

NEW = "a wholly different password"


@pytest.fixture
def path(app: Flask, make: Any, ada: Any) -> str:
    with app.app_context():
        link = issue_reset_link(make.actor(ada.organization), ada.id).link
    assert link.startswith(f"{BASE_URL}/organizations/{ada.organization.slug}/reset/gth_pw_")
    return link.removeprefix(BASE_URL)


def test_opening_a_reset_link_does_not_use_it(visitor: Visitor, make: Any, ada: Any, path: str) -> None:
    """RP-3: mail scanners open every link."""
    for _ in range(3):
        assert visitor.get(path).status_code == 200
    answer = visitor.post(path, password=NEW)
    assert (answer.status_code, answer.location) == (
        303,
        f"/organizations/{ada.organization.slug}/login?reset=1",
    )
    set_here = {cookie.partition("=")[0] for cookie in answer.headers.getlist("Set-Cookie")}
    assert f"gatehouse-known-{ada.organization.id}" in set_here
    assert make.cookie_name(ada.organization) not in set_here, "a reset does not sign in"
    page = visitor.get(answer.location).text
    assert 'id="reset-done"' in page and f'value="{ada.email}"' in page
    assert visitor.sign_in(ada, NEW).status_code == 303
    assert visitor.get(path).status_code == 409


def test_reset_in_the_browser_of_another_user_leads_to_the_sign_in_page(
    visitor: Visitor, make: Any, ada: Any, path: str
) -> None:
    grace = make.user(ada.organization)
    visitor.sign_in(grace)
    visitor.get(path)
    page = visitor.get(visitor.post(path, password=NEW).location).text
    assert 'id="reset-done"' in page and grace.email not in page


def test_reset_with_invalid_password_is_rejected(visitor: Visitor, ada: Any, path: str) -> None:
    visitor.get(path)
    answer = visitor.post(path, password="short")
    assert answer.status_code == 400 and 'aria-invalid="true"' in answer.text
    assert visitor.sign_in(ada, PASSWORD).status_code == 303


def test_reset_page_does_not_leak_its_url(visitor: Visitor, path: str) -> None:
    answer = visitor.get(path)
    assert answer.headers["Referrer-Policy"] in {"same-origin", "no-referrer"}
    assert "no-store" in answer.headers["Cache-Control"]


def test_forged_host_does_not_change_the_link(app: Flask, make: Any, ada: Any) -> None:
    """RP-2."""
    with app.test_request_context(headers={"Host": "evil.example", "X-Forwarded-Host": "evil.example"}):
        link = issue_reset_link(make.actor(ada.organization), ada.id).link
    assert link.startswith(f"{BASE_URL}/organizations/")
