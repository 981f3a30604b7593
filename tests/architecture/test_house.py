"""The house stands as it was drawn: floors, one committer, actors first, files that are read in one sitting."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
import subprocess
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import app.operations

ROOT = Path(__file__).resolve().parents[2]
TOP_LEVEL = {
    *("app", "migrations", "templates", "static", "tests", "wsgi.py", "requirements.txt", "README.md"),
    *("script", "pyproject.toml", "docs", "CHANGELOG.md", ".ci", ".gitignore"),
}
LONGEST_FILE = 300
LONGEST_FOLDER = 40

# What stands beneath the operations: the unit of work and look-ups that build an actor, so none is at hand yet.
BENEATH = {
    *("transaction", "clock", "database_errors", "statements", "leases", "keyring", "directory", "sweeps"),
    *("readiness", "attempts", "rights"),
}
# Operations that find out who asks, or that a stranger may call; each says so by its name here.
WITHOUT_ACTOR: dict[str, set[str]] = {}


def files(*patterns: str) -> list[Path]:
    """The files of the repository, those not yet committed included."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\n")
    return [ROOT / name for name in listed if name and (ROOT / name).exists()]


def public_operations() -> Iterator[tuple[str, str, inspect.Signature]]:
    for module_info in pkgutil.iter_modules(app.operations.__path__):
        if module_info.name in BENEATH:
            continue
        module = import_module(f"app.operations.{module_info.name}")
        for name, function in vars(module).items():
            if name.startswith("_") or not inspect.isfunction(function):
                continue
            if inspect.unwrap(function).__module__ == module.__name__:
                yield module_info.name, name, inspect.signature(function)


def test_nothing_else_stands_at_the_top() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in files()} <= TOP_LEVEL


def test_every_public_operation_takes_the_actor_first() -> None:
    wrong = [
        f"{module}.{name}{signature}"
        for module, name, signature in public_operations()
        if name not in WITHOUT_ACTOR.get(module, set())
        and next(iter(signature.parameters), "") != "actor"
    ]
    assert wrong == []


def test_the_exceptions_still_exist() -> None:
    there = {(module, name) for module, name, _ in public_operations()}
    assert {(module, name) for module, names in WITHOUT_ACTOR.items() for name in names} <= there


def test_one_file_alone_commits() -> None:
    """By the syntax tree: a commit that a comment mentions is none."""
    committing = {
        path.relative_to(ROOT).as_posix()
        for path in files("app/*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "commit"
    }
    assert committing == {"app/operations/transaction.py"}


def test_no_file_needs_a_second_sitting() -> None:
    patterns = ("app/*.py", "tests/*.py", "migrations/*.py", "script/*", "*.html", "static/*.js")
    long = {
        path.relative_to(ROOT).as_posix(): lines
        for path in files(*patterns)
        if (lines := len(path.read_text().splitlines())) > LONGEST_FILE
    }
    assert long == {}


def test_no_folder_of_the_application_loses_its_reader() -> None:
    counts: dict[str, int] = {}
    for path in files("app/*.py"):
        folder = path.parent.relative_to(ROOT).as_posix()
        counts[folder] = counts.get(folder, 0) + 1
    assert {folder: count for folder, count in counts.items() if count > LONGEST_FOLDER} == {}


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
