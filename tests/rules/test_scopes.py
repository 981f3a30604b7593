"""Scopes: syntax, restriction and comparison."""

from __future__ import annotations

from app.rules.scopes import (
    disallowed_scopes,
    format_scope,
    is_scope,
    is_subset,
    parse_scope,
    restrict_scopes,
)
from tests.support.cases import each


@each(
    ("text", "expected"),
    [
        ("", ()),
        ("openid", ("openid",)),
        ("openid email", ("openid", "email")),
        ("email openid email", ("email", "openid")),
        ("https://api.example/read orders:write", ("https://api.example/read", "orders:write")),
        ("OpenID openid", ("OpenID", "openid")),
    ],
)
def test_scope_parameter_keeps_its_order(text, expected):
    assert parse_scope(text) == expected


@each(
    "text",
    [" ", " openid", "openid ", "openid  email", "openid\temail", "openid\n", 'a"b', "a\\b", "ä", "a\x00", "x" * 129,
     " ".join(f"s{n}" for n in range(101))],
)  # fmt: skip
def test_malformed_scope_parameter_is_none(text):
    assert parse_scope(text) is None


@each("text", ["", "a b", 'a"', "a\\", "é", "x" * 129, "a\n"])
def test_invalid_scope_is_rejected(text):
    assert not is_scope(text)


def test_restrict_scopes_keeps_the_requested_order():
    assert restrict_scopes(("email", "admin", "openid"), ("openid", "email")) == ("email", "openid")
    assert disallowed_scopes(("email", "admin"), ("openid", "email")) == ("admin",)
    assert is_subset(("email",), ("openid", "email"))
    assert not is_subset(("Email",), ("openid", "email"))
    assert format_scope(("openid", "email")) == "openid email"
