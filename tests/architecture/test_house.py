"""The house stands as it was drawn: floors, one committer, files that are read in one sitting."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOP_LEVEL = {
    *("app", "migrations", "templates", "static", "tests", "wsgi.py", "requirements.txt", "README.md"),
    *("script", "pyproject.toml", "docs", "CHANGELOG.md", ".ci", ".gitignore"),
}
LONGEST_FILE = 300
FACES = ("api", "portal", "account", "oauth", "cli", "web")


def files(*patterns: str) -> list[Path]:
    """The files of the repository, those not yet committed included."""
    # The clone may belong to somebody else, as where a container runs the tests.
    command = [
        "git",
        "-c",
        "safe.directory=*",
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "--",
        *patterns,
    ]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\n")
    return [ROOT / name for name in listed if name and (ROOT / name).exists()]


def test_nothing_else_stands_at_the_top() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in files()} <= TOP_LEVEL


def test_one_file_alone_commits() -> None:
    """By the syntax tree: a commit that a comment mentions is none."""
    committing = {
        path.relative_to(ROOT).as_posix()
        for path in files("app/*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "commit"
    }
    assert committing == {"app/operations/store/transactions.py"}


def test_au2_audit_events_are_never_updated() -> None:
    """By no statement of ours: what is written stays until retention ends it."""
    updating = re.compile(r"\bupdate\(\s*AuditEvent\b|\bUPDATE\s+audit_events\b")
    found = [path.name for path in files("app/*.py", "migrations/*.py") if updating.search(path.read_text())]
    assert found == []


def test_one_module_alone_speaks_http_to_others() -> None:
    """SF-1: what import-linter cannot see, because it looks at the standard library's packages and not within.

    protocol: outgoing requests, one module.
    """
    clients = re.compile(
        r"\b(urllib\.request|http\.client|from http import client|from urllib import request)\b"
    )
    callers = {path.parent.name for path in (ROOT / "app").rglob("*.py") if clients.search(path.read_text())}
    # The isolation check is a visitor of this very service.
    assert callers == {"isolation", "outgoing"}


def test_no_file_needs_a_second_sitting() -> None:
    patterns = ("app/*.py", "tests/*.py", "migrations/*.py", "script/*", "*.html", "static/*.js")
    long = {
        path.relative_to(ROOT).as_posix(): lines
        for path in files(*patterns)
        if (lines := len(path.read_text().splitlines())) > LONGEST_FILE
    }
    assert long == {}


def test_nothing_is_left_open() -> None:
    marks = re.compile(r"\b(TO[D]O|FIX[M]E|X{3}|HAC[K])\b|NotImplementedError\(")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files("app", "tests", "templates", "script", "migrations")
        if path.suffix in {".py", ".html", ".sh", ".js", ".css", ""}
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if marks.search(line)
    ]
    assert found == []


def test_no_test_is_skipped() -> None:
    skips = re.compile(r"pytest\.(mark\.(skip|skipif|xfail)|skip\(|importorskip|xfail\()")
    me = Path(__file__)
    assert [str(path) for path in files("tests/*.py") if path != me and skips.search(path.read_text())] == []


@pytest.mark.parametrize("floor", ["rules", "models", "operations"])
def test_lower_floors_are_fully_annotated(floor: str) -> None:
    """mypy is strict about them; this keeps a wide ignore from switching that off."""
    loose = re.compile(r"#\s*(type: ignore(?!\[)|mypy:|ruff: noqa(?!: [A-Z])|flake8)")
    assert [str(path) for path in files(f"app/{floor}/*.py") if loose.search(path.read_text())] == []


def test_times_come_from_the_database() -> None:
    """Stored state is stamped by clock.now() (CK-1): no operation asks the machine."""
    asking = re.compile(r"datetime\.(now|utcnow)\(|date\.today\(|time\.time\(")
    found = {path.name for path in files("app/operations/*.py") if asking.search(path.read_text())}
    assert found <= {"clock.py"}


def test_what_tests_read_from_the_environment_reaches_them() -> None:
    """script/test unsets the service's settings, and nothing that a test's long form asks for."""
    read = {
        name
        for file in (ROOT / "tests").rglob("*.py")
        for name in re.findall(r"environ(?:\.get\(|\[)\"(GATEHOUSE_\w+)\"", file.read_text())
    }
    script = (ROOT / "script/test").read_text()
    kept = re.findall(r"^ +(GATEHOUSE_[A-Z_ |]+)\) ;;$", script, re.MULTILINE)
    assert read == {name for names in kept for name in names.split(" | ")}


def test_no_test_becomes_a_serving_process() -> None:
    """Who imports wsgi has its threads, on whatever database the environment names."""
    importing = {
        file.relative_to(ROOT).as_posix()
        for file in (ROOT / "tests").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if (isinstance(node, ast.ImportFrom) and node.module in {"wsgi", "tests.support.live"})
        or (isinstance(node, ast.Import) and "wsgi" in {alias.name for alias in node.names})
    }
    assert importing == {"tests/support/live.py"}
