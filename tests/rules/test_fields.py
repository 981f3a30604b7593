"""What all bodies share: unknown names are told, with what was meant, and not without end."""

from __future__ import annotations

from app.rules.fields import MOST_UNKNOWN, Findings, find_unknown


def test_an_unknown_name_comes_with_what_was_meant() -> None:
    findings = Findings()
    find_unknown(findings, ["redirect_uri"], ["redirect_uris", "name"])
    assert [(error.field, error.code) for error in findings.errors] == [("redirect_uri", "unknown_field")]
    assert "redirect_uris" in findings.errors[0].message


def test_a_body_of_unknown_names_is_not_told_without_end() -> None:
    findings = Findings()
    find_unknown(findings, (f"name{number}" for number in range(10_000)), ["redirect_uris"])
    assert len(findings.errors) == MOST_UNKNOWN
