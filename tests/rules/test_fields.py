"""Unknown fields: each gets a suggestion, and their number is limited."""

from __future__ import annotations

from app.rules.fields import MAX_UNKNOWN, ValidationErrors, find_unknown


def test_unknown_field_gets_suggestion() -> None:
    findings = ValidationErrors()
    find_unknown(findings, ["redirect_uri"], ["redirect_uris", "name"])
    assert [(error.field, error.code) for error in findings.errors] == [("redirect_uri", "unknown_field")]
    assert "redirect_uris" in findings.errors[0].message


def test_number_of_unknown_field_errors_is_limited() -> None:
    findings = ValidationErrors()
    find_unknown(findings, (f"name{number}" for number in range(10_000)), ["redirect_uris"])
    assert len(findings.errors) == MAX_UNKNOWN
