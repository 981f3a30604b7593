"""Slugs: validation, and derivation from names."""

from __future__ import annotations

from app.rules.organizations.organizations import RESERVED, slug_candidates, slug_from_name, slug_problem
from tests.support.cases import each


@each("slug", ["acme", "a1b", "globex-corporation", "x" * 40, "0-0"])
def test_valid_slug_is_accepted(slug: str) -> None:
    assert slug_problem(slug) is None


@each(
    "slug",
    [
        "",
        "a",
        "ab",
        "x" * 41,
        "-acme",
        "acme-",
        "Acme",
        "ac me",
        "ac_me",
        "acmé",
        "acme\n",
        "root",
        "login",
        "api",
    ],
)
def test_invalid_slug_is_rejected(slug: str) -> None:
    assert slug_problem(slug) is not None


@each(
    ("name", "slug"),
    [
        ("Acme", "acme"),
        ("Globex Corporation, Inc.", "globex-corporation-inc"),
        ("Müller & Söhne Straße", "muller-sohne-strasse"),
        ("AB", "ab-org"),
        ("Login", "login-org"),
        ("日本", None),
        ("x" * 60, "x" * 40),
    ],
)
def test_slug_is_derived_from_name(name: str, slug: str | None) -> None:
    assert slug_from_name(name) == slug


def test_slug_candidates_are_valid() -> None:
    for slug in ("acme", "x" * 40, "a" * 35 + "-bcde"):
        assert all(slug_problem(candidate) is None for candidate in slug_candidates(slug))


def test_reserved_words_are_valid_slugs() -> None:
    assert all(word == word.lower() for word in RESERVED)
