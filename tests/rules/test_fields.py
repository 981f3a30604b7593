"""Unknown fields: each gets a suggestion, and their number is limited."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from app.rules import fields
from app.rules.directory.attributes import Attribute, require_valid_attributes
from app.rules.errors import MAX_ERRORS, InvalidInput
from app.rules.fields import MAX_UNKNOWN, ValidationErrors, find_unknown
from app.rules.organizations.instance_limits import merge_bounds
from app.rules.organizations.settings import merge_settings
from app.rules.users.profile import validate_profile


def test_unknown_field_gets_suggestion() -> None:
    findings = ValidationErrors()
    find_unknown(findings, ["redirect_uri"], ["redirect_uris", "name"])
    assert [(error.field, error.code) for error in findings.errors] == [("redirect_uri", "unknown_field")]
    assert "redirect_uris" in findings.errors[0].message


def test_number_of_unknown_field_errors_is_limited() -> None:
    findings = ValidationErrors()
    find_unknown(findings, (f"name{number}" for number in range(10_000)), ["redirect_uris"])
    assert len(findings.errors) == MAX_UNKNOWN


MANY = {f"name{number}": 1 for number in range(2_000)}


@pytest.mark.parametrize(
    "check",
    [
        lambda: merge_settings({}, MANY, {}),
        lambda: merge_settings({}, {"oauth": MANY}, {}),
        lambda: merge_settings({}, {"user_permissions": {"roles": {"support": MANY}}}, {}),
        lambda: merge_settings({}, {"user_profile": {"attributes": [MANY]}}, {}),
        lambda: merge_bounds({}, MANY),
        lambda: require_valid_attributes([Attribute("team", "Team", "string")], MANY, {}),
        lambda: validate_profile(MANY),
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
