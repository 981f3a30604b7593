"""Causes of failed requests: the table and the causes used in the code match."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from app.rules.audit.failed_requests import CAUSES, CAUSES_BY_ERROR, default_cause
from app.rules.errors import DomainError, InvalidGrant
from tests.support.cases import each

APP = Path(__file__).resolve().parents[3] / "app"
TABLE = APP / "rules" / "audit" / "failed_requests.py"


def named_by_code() -> set[str]:
    """Return the first argument of every call of ``with_cause``."""
    found = set()
    for path in APP.rglob("*.py"):
        if "with_cause" not in (source := path.read_text()):
            continue
        for node in ast.walk(ast.parse(source)):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            if node.func.attr == "with_cause" and node.args:
                found |= {
                    part.value
                    for part in ast.walk(node.args[0])
                    if isinstance(part, ast.Constant) and isinstance(part.value, str)
                }
    return found


def test_every_cause_in_the_code_is_explained() -> None:
    assert named_by_code() - set(CAUSES) == set()
    assert set(CAUSES_BY_ERROR.values()) - set(CAUSES) == set()


def test_every_explained_cause_is_used() -> None:
    """By a call of ``with_cause``, by the error code, or determined afterwards."""
    named = set(CAUSES_BY_ERROR.values()) | {"refused"}
    for path in APP.rglob("*.py"):
        if path != TABLE:
            named |= set(re.findall(r'"(\w+)"', path.read_text()))
    assert set(CAUSES) - named == set()


@each("code", CAUSES)
def test_explanation_has_two_sentences(code: str) -> None:
    explanation = CAUSES[code]
    assert explanation.what[0].isupper() and explanation.what.endswith(".")
    assert explanation.fix[0].isupper() and explanation.fix.endswith(".")


def test_with_cause_keeps_class_and_description() -> None:
    error = InvalidGrant().with_cause("code_expired", received="74 s", expected="60 s")
    assert isinstance(error, InvalidGrant)
    assert error.cause is not None
    assert (error.cause.code, error.cause.received, error.cause.expected) == (
        "code_expired",
        "74 s",
        ("60 s",),
    )
    assert "74" not in error.description


def test_error_without_cause_has_the_default_cause() -> None:
    assert DomainError("no").cause is None
    assert default_cause("invalid_scope") == "scope_not_allowed"
    assert default_cause("something_new") == "refused"
