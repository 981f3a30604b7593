"""The page that deletes the account."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask

from tests.account.conftest import Visitor


@pytest.fixture
def open_house(make: Any) -> Any:
    """Create an organization whose members may delete their accounts."""
    return make.organization(
        name="Acme",
        settings={
            "user_permissions": {"members_can_delete_account": True},
            "authentication": {"sessions": {"reauthentication_seconds": 60}},
        },
    )


@pytest.fixture
def leaver(make: Any, open_house: Any) -> Any:
    return make.user(open_house, email="ada@acme.example")


def url(organization: Any, page: str = "delete") -> str:
    return f"/organizations/{organization.slug}/account/{page}"


def test_account_deletion_asks_for_the_email_and_signs_out(
    visitor: Visitor, open_house: Any, leaver: Any
) -> None:
    visitor.sign_in(leaver)
    assert url(open_house) in visitor.get(url(open_house, "profile")).text
    asked = visitor.get(url(open_house)).text
    assert "What happens when you delete it" in asked and "each for 365 days" in asked
    wrong = visitor.post(url(open_house), email="eve@acme.example")
    assert wrong.status_code == 400 and 'id="email-error"' in wrong.text
    gone = visitor.post(url(open_house), email=leaver.email)
    assert gone.location == "/login" and 'id="account-deleted"' in visitor.get(gone.location).text
    assert visitor.get(url(open_house, "profile")).location.startswith(
        f"/organizations/{open_house.slug}/login"
    )
    assert visitor.sign_in(leaver).status_code == 400


def test_account_deletion_requires_a_recent_sign_in(
    visitor: Visitor, app: Flask, open_house: Any, leaver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PO-4."""
    from datetime import timedelta

    from app.operations.sign_in import reauthentication
    from app.operations.store import clock

    visitor.sign_in(leaver)
    now = clock.now
    with monkeypatch.context() as later:
        later.setattr(
            reauthentication, "clock", type("Late", (), {"now": lambda: now() + timedelta(minutes=5)})
        )
        answer = visitor.get(url(open_house))
    assert answer.status_code == 303
    assert answer.location.startswith(f"/organizations/{open_house.slug}/login?next=")
    assert "reauthenticate=1" in answer.location and "account%2Fdelete" in answer.location


def test_account_deletion_is_hidden_when_not_allowed(visitor: Visitor, acme: Any, ada: Any) -> None:
    visitor.sign_in(ada)
    assert "/delete" not in visitor.get(url(acme, "profile")).text
    assert visitor.get(url(acme)).status_code == 403


def test_last_administrator_cannot_delete_the_account(visitor: Visitor, make: Any, open_house: Any) -> None:
    boss = make.user(open_house, email="boss@acme.example", role="admin")
    visitor.sign_in(boss)
    visitor.get(url(open_house))
    answer = visitor.post(url(open_house), email=boss.email)
    assert answer.status_code == 409 and "last administrator" in answer.text
