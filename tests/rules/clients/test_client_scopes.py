"""What a client gets for itself: what it asked for and holds, never a user's scopes (CC-1)."""

from __future__ import annotations

import pytest

from app.rules.clients.client_types import scopes_for_itself
from app.rules.errors import InvalidScope

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
def test_it_gets_what_it_asked_for_or_all_it_holds(asked: str, given: tuple[str, ...]) -> None:
    assert scopes_for_itself(asked, HELD) == given


@pytest.mark.parametrize("asked", ["openid", "profile", "offline_access", "reports:read openid"])
def test_scopes_of_a_user_are_refused_although_registered(asked: str) -> None:
    with pytest.raises(InvalidScope):
        scopes_for_itself(asked, HELD)


@pytest.mark.parametrize(
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
def test_more_than_it_holds_and_what_is_malformed_are_refused(asked: str) -> None:
    with pytest.raises(InvalidScope) as refused:
        scopes_for_itself(asked, HELD)
    assert refused.value.code == "invalid_scope"
    assert refused.value.description.isascii() and '"' not in refused.value.description


def test_who_holds_nothing_of_its_own_gets_nothing() -> None:
    assert scopes_for_itself("", ("openid", "email")) == ()
