"""User codes: users may type them with any separators (RFC 8628 section 6.1)."""

from __future__ import annotations

from app.rules.authorization.interaction import format_user_code, generate_user_code, parse_user_code
from tests.support.cases import each


@each(
    "typed",
    ["BCDF-GHJK", "bcdfghjk", " bcdf ghjk ", "b-c-d-f-g-h-j-k", "BCDF\u2013GHJK", "BCDF.GHJK", "bCdF_gHjK"],
)
def test_dv1_dashes_spaces_and_case_are_ignored(typed: str) -> None:
    assert parse_user_code(typed) == "BCDFGHJK"


@each(
    "typed",
    [
        "",
        "BCDF-GHJ",
        "BCDF-GHJKL",
        "ABCD-FGHJ",
        "BCDF-GHJ1",
        "BCDFGHJ\u212a",
        "B" * 8 + " " * 100,
        "ßCDFGHJK",
    ],
)
def test_malformed_code_is_none(typed: str) -> None:
    assert parse_user_code(typed) is None


def test_displayed_code_is_parsed_back() -> None:
    code = generate_user_code()
    assert parse_user_code(format_user_code(code)) == code and format_user_code(code)[4] == "-"
