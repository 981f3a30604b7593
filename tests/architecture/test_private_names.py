"""No private name of a library is used: only names that begin with an underscore and are defined in this repository."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Public names of the standard library and of Werkzeug that begin with an underscore, as their documentation says.
DOCUMENTED = {"_exit", "_make", "_asdict", "_replace", "_fields", "_get_current_object"}


@functools.cache
def _trees() -> tuple[tuple[str, ast.Module], ...]:
    folders = (ROOT / name for name in ("app", "script", "tests"))
    files = (ROOT / "wsgi.py", *(file for folder in folders for file in folder.rglob("*.py")))
    return tuple(
        (path.relative_to(ROOT).as_posix(), ast.parse(path.read_text()))
        for path in files
        if "node_modules" not in path.parts
    )


def _defined(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                yield name
            case (
                ast.Name(id=name, ctx=ast.Store())
                | ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store())
            ):
                yield name


def _used(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Private attributes, private imported names and private modules, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.lineno, node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, part) for part in (node.module or "").split("."))
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, part) for alias in node.names for part in alias.name.split("."))


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_typeshed"


def _found(trees: Iterable[tuple[str, ast.Module]]) -> list[str]:
    own = {name for _, tree in trees for name in _defined(tree)} | DOCUMENTED
    return [
        f"{path}:{line} {name}"
        for path, tree in trees
        for line, name in _used(tree)
        if _is_private(name) and name not in own
    ]


@pytest.mark.slow
@pytest.mark.xdist_group("syntax trees")
def test_no_private_name_of_a_library_is_used() -> None:
    assert _found(_trees()) == []


@pytest.mark.slow
@pytest.mark.xdist_group("syntax trees")
def test_no_private_method_of_a_library_is_overridden() -> None:
    """A private method of a class is either called by the repository or overrides the library's."""
    trees = _trees()
    called = {name for _, tree in trees for _, name in _used(tree)} | {
        node.id for _, tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name)
    }
    unused = [
        f"{path}:{method.lineno} {method.name}"
        for path, tree in trees
        for kind in ast.walk(tree)
        if isinstance(kind, ast.ClassDef) and kind.bases
        for method in kind.body
        if isinstance(method, ast.FunctionDef) and _is_private(method.name) and method.name not in called
    ]
    assert unused == []


def test_private_names_of_libraries_are_found() -> None:
    source = "from granian._granian import x\nimport flask\nflask.g._login_user = item._fixtureinfo"
    assert len(_found([("new.py", ast.parse(source))])) == 3
