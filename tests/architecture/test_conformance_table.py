"""docs/conformance.md: the tests that it names exist, and each supported RFC has one."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
DOCUMENT = (TESTS.parent / "docs" / "conformance.md").read_text()
_ROW = re.compile(r"^\| ([^|]+) \| ([\d.]+|all) \| [^|]+ \| `([\w/]+\.py)::(test_\w+)` \|$", re.MULTILINE)


@cache
def names_in(path: Path) -> frozenset[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef))


def rows() -> list[tuple[str, str, str, str]]:
    section = DOCUMENT.partition("## Tests by section")[2].partition("\n## ")[0]
    found = _ROW.findall(section)
    # Two lines are the header.
    assert len(found) == section.count("\n|") - 2, "a line is malformed"
    return found


def test_named_tests_exist() -> None:
    for standard, section, path, name in rows():
        assert name in names_in(TESTS / path), f"{standard}, {section}: there is no {path}::{name}"


def test_every_supported_rfc_has_a_test() -> None:
    features = DOCUMENT.partition("## Tests by section")[0]
    supported = set(re.findall(r"\b\d{4}\b", " ".join(re.findall(r"RFC ([\d, ]+)", features))))
    assert supported <= {standard.removeprefix("RFC ") for standard, *_ in rows()}
    assert len(supported) > 15


def test_each_section_is_listed_once() -> None:
    listed = [row[:2] for row in rows()]
    repeated = {key for key in listed if listed.count(key) > 1}
    assert repeated == set()
