"""Slugs: which may be chosen, and what a name suggests."""

from __future__ import annotations

import pytest

from app.rules.organizations.organizations import RESERVED, slug_candidates, slug_from_name, slug_problem


@pytest.mark.parametrize("slug", ["acme", "a1b", "globex-corporation", "x" * 40, "0-0"])
def test_a_good_slug(slug: str) -> None:
    assert slug_problem(slug) is None


@pytest.mark.parametrize(
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
def test_a_refused_slug(slug: str) -> None:
    assert slug_problem(slug) is not None


@pytest.mark.parametrize(
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
def test_a_name_suggests_a_slug(name: str, slug: str | None) -> None:
    assert slug_from_name(name) == slug


def test_candidates_are_all_valid() -> None:
    for slug in ("acme", "x" * 40, "a" * 35 + "-bcde"):
        assert all(slug_problem(candidate) is None for candidate in slug_candidates(slug))


def test_no_reserved_word_is_written_wrongly() -> None:
    assert all(word == word.lower() for word in RESERVED)
