"""The causes of refusals: what the code names is in the table, and what the table holds is named by the code."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from app.rules.audit.failed_requests import CAUSES, CAUSES_BY_ERROR, default_cause
from app.rules.errors import DomainError
from app.rules.oauth_errors import InvalidGrant

APP = Path(__file__).resolve().parents[3] / "app"


def named_by_code() -> set[str]:
    """The first argument of every call of ``because``, however the code is chosen there."""
    found = set()
    for path in APP.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            if node.func.attr == "because" and node.args:
                found |= {
                    part.value
                    for part in ast.walk(node.args[0])
                    if isinstance(part, ast.Constant) and isinstance(part.value, str)
                }
    return found


def test_every_cause_that_the_code_names_is_explained() -> None:
    assert named_by_code() - set(CAUSES) == set()
    assert set(CAUSES_BY_ERROR.values()) - set(CAUSES) == set()


def test_every_cause_that_is_explained_can_happen() -> None:
    """By a call of ``because``, by the error's own code, or found out afterwards."""
    named = set(CAUSES_BY_ERROR.values()) | {"refused"}
    for path in APP.rglob("*.py"):
        if path.name != "failure_causes.py":
            named |= {
                node.value
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.Constant) and isinstance(node.value, str)
            }
    assert set(CAUSES) - named == set()


@pytest.mark.parametrize("code", CAUSES)
def test_an_explanation_is_two_sentences_for_people(code: str) -> None:
    explanation = CAUSES[code]
    assert explanation.what[0].isupper() and explanation.what.endswith(".")
    assert explanation.fix[0].isupper() and explanation.fix.endswith(".")


def test_a_refusal_keeps_its_class_words_and_cause() -> None:
    error = InvalidGrant().with_cause("code_expired", received="74 s", expected="60 s")
    assert isinstance(error, InvalidGrant)
    assert error.cause is not None
    assert (error.cause.code, error.cause.received, error.cause.expected) == (
        "code_expired",
        "74 s",
        ("60 s",),
    )
    assert "74" not in error.description


def test_a_refusal_without_a_cause_has_the_one_of_its_error() -> None:
    assert DomainError("no").cause is None
    assert default_cause("invalid_scope") == "scope_not_allowed"
    assert default_cause("something_new") == "refused"
