"""Field errors: texts for display, and unknown fields, whose suggestions are limited in number."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from app.rules import fields
from app.rules.directory.attributes import Attribute, validate_attributes
from app.rules.errors import MAX_ERRORS, InvalidInput
from app.rules.fields import MAX_MARKS, MAX_UNKNOWN, ValidationErrors, find_unknown, text_problem
from app.rules.organizations.instance_limits import merge_bounds
from app.rules.organizations.settings import merge_settings
from app.rules.users.profile import validate_profile
from tests.support.cases import each


@each(
    ("text", "code"),
    [
        ("Nguyễn Đặng Thị Ánh", None),
        ("ที่นี่ עִבְרִית क्ष्म्य", None),
        ("I ❤\ufe0f 葛\U000e0100城 🇩🇪", None),
        ("می\u200cخواهم ශ්\u200dරී 👩🏽\u200d💻 ❤\ufe0f\u200d🔥", None),
        ("ᠠ\u180b 🏳\ufe0f\u200d🌈", None),
        ("東\u200d京", "forbidden_character"),
        ("東\u200c京", "forbidden_character"),
        ("東\ufe0f京", "forbidden_character"),
        ("서울\ufe0f", "forbidden_character"),
        ("☎\u200c☎", "forbidden_character"),
        ("☎\u180b", "forbidden_character"),
        ("Ac\u200dme", "forbidden_character"),
        ("ශ්\u200d", "forbidden_character"),
        ("\u200cخ", "forbidden_character"),
        ("Acme\n", "surrounding_space"),
        ("Ac\nme", "forbidden_character"),
        ("a\u202eb", "forbidden_character"),
        ("Acme\u200b", "forbidden_character"),
        ("Acme\u3164", "forbidden_character"),
        ("\u2800", "forbidden_character"),
        ("Ac\u034fme", "forbidden_character"),
        ("Acme\ufe0f", "forbidden_character"),
        ("Acme\u180b", "forbidden_character"),
        ("A" + "\u0338" * (MAX_MARKS + 1), "forbidden_character"),
        ("A" + "\u20dd" * (MAX_MARKS + 1), "forbidden_character"),
    ],
)
def test_text_for_display_is_visible_and_stays_in_its_line(text: str, code: str | None) -> None:
    problem = text_problem(text, max_length=100)
    assert (problem and problem.code) == code


def test_unknown_field_gets_suggestion() -> None:
    findings = ValidationErrors()
    find_unknown(findings, ["redirect_uri"], ["redirect_uris", "name"])
    assert [(error.field, error.code) for error in findings.errors] == [("redirect_uri", "unknown_field")]
    assert "redirect_uris" in findings.errors[0].message


def test_number_of_unknown_field_errors_is_limited() -> None:
    findings = ValidationErrors()
    find_unknown(findings, (f"name{number}" for number in range(10_000)), ["redirect_uris"])
    assert len(findings.errors) == MAX_UNKNOWN


def raise_errors(check: Callable[[ValidationErrors], object]) -> None:
    errors = ValidationErrors()
    check(errors)
    errors.raise_if_any()


MANY = {f"name{number}": 1 for number in range(2_000)}


@pytest.mark.parametrize(
    "check",
    [
        lambda: merge_settings({}, MANY, {}),
        lambda: merge_settings({}, {"oauth": MANY}, {}),
        lambda: merge_settings({}, {"user_permissions": {"roles": {"support": MANY}}}, {}),
        lambda: merge_settings({}, {"user_profile": {"attributes": [MANY]}}, {}),
        lambda: merge_bounds({}, MANY),
        lambda: raise_errors(
            lambda errors: validate_attributes([Attribute("team", "Team", "string")], MANY, {}, errors)
        ),
        lambda: raise_errors(lambda errors: validate_profile(MANY, errors)),
    ],
)
def test_answer_to_thousands_of_unknown_fields_is_short(
    check: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """JS-5."""
    searches: list[str] = []
    monkeypatch.setattr(fields, "get_close_matches", lambda name, *_: searches.append(name) or [])
    with pytest.raises(InvalidInput) as refused:
        check()
    assert 0 < len(refused.value.errors) <= MAX_ERRORS and len(searches) <= MAX_ERRORS
