"""Scopes of client_credentials: the requested ones among the client's own, never a user's (CC-1)."""

from __future__ import annotations

import pytest

from app.rules.clients.client_types import scopes_for_itself
from app.rules.errors import InvalidScope
from tests.support.cases import each

HELD = ("openid", "profile", "offline_access", "reports:read", "reports:write")


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ("", ("reports:read", "reports:write")),
        ("reports:read", ("reports:read",)),
        ("reports:write reports:read", ("reports:write", "reports:read")),
        ("reports:read reports:read", ("reports:read",)),
    ],
)
def test_client_gets_requested_or_all_registered_scopes(asked: str, given: tuple[str, ...]) -> None:
    assert scopes_for_itself(asked, HELD) == given


@each("asked", ["openid", "profile", "offline_access", "reports:read openid"])
def test_user_scopes_are_rejected_although_registered(asked: str) -> None:
    with pytest.raises(InvalidScope):
        scopes_for_itself(asked, HELD)


@each(
    "asked",
    [
        "reports:delete",
        "reports:read reports:delete",
        "Reports:read",
        "reports",
        "reports:read\t",
        " reports:read",
        "a  b",
        'say"',
        "ü",
        "a\\b",
        "reports:read ",
        "x" * 200,
    ],
)
def test_unregistered_and_malformed_scopes_are_rejected(asked: str) -> None:
    with pytest.raises(InvalidScope) as refused:
        scopes_for_itself(asked, HELD)
    assert refused.value.code == "invalid_scope"
    assert refused.value.description.isascii() and '"' not in refused.value.description


def test_client_without_own_scopes_gets_none() -> None:
    assert scopes_for_itself("", ("openid", "email")) == ()
