"""No private name of a library is used: only names that begin with an underscore and are defined in this repository."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Public names of the standard library and of Werkzeug that begin with an underscore, as their documentation says.
DOCUMENTED = {"_exit", "_make", "_asdict", "_replace", "_fields", "_get_current_object"}


@dataclass
class Names:
    """The names of one file: the private ones that it defines and uses, and the rest that the tests below need."""

    path: str
    defined: set[str] = field(default_factory=set)
    # Private attributes, imported names and modules, with their lines.
    used: list[tuple[int, str]] = field(default_factory=list)
    read: set[str] = field(default_factory=set)
    # Private methods of classes with a base.
    methods: list[tuple[int, str]] = field(default_factory=list)

    def note(self, node: ast.AST) -> None:
        """Record what one node of the file's syntax tree says."""
        match node:
            case ast.Attribute(attr=name, value=value):
                if is_private(name):
                    self.used.append((node.lineno, name))
                    if isinstance(node.ctx, ast.Store) and getattr(value, "id", "") in {"self", "cls"}:
                        self.defined.add(name)
            case ast.Name(id=name) | ast.arg(arg=name):
                if is_private(name):
                    is_read = isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store)
                    (self.read if is_read else self.defined).add(name)
            case ast.FunctionDef(name=name):
                self.defined.add(name)
            case ast.ClassDef(name=name):
                self.defined.add(name)
                if node.bases:
                    of_class = (part for part in node.body if isinstance(part, ast.FunctionDef))
                    self.methods += ((part.lineno, part.name) for part in of_class if is_private(part.name))
            case ast.ImportFrom() | ast.Import():
                parts = [*(getattr(node, "module", None) or "").split(".")]
                parts += [part for alias in node.names for part in alias.name.split(".")]
                self.used += ((node.lineno, part) for part in parts if is_private(part))


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_typeshed"


def names_of(path: str, source: str) -> Names:
    """Return the names of a file. Its syntax tree, which is large, does not outlive the call."""
    names = Names(path)
    for node in ast.walk(ast.parse(source)):
        names.note(node)
    return names


@pytest.fixture(scope="module")
def files() -> list[Names]:
    found = (path for name in ("app", "script", "tests") for path in (ROOT / name).rglob("*.py"))
    paths = [ROOT / "wsgi.py", *(path for path in found if "node_modules" not in path.parts)]
    return [names_of(path.relative_to(ROOT).as_posix(), path.read_text()) for path in paths]


def private_names_of_libraries(files: Iterable[Names]) -> list[str]:
    own = {name for file in files for name in file.defined} | DOCUMENTED
    return [f"{file.path}:{line} {name}" for file in files for line, name in file.used if name not in own]


@pytest.mark.slow
def test_no_private_name_of_a_library_is_used(files: list[Names]) -> None:
    assert private_names_of_libraries(files) == []


@pytest.mark.slow
def test_no_private_method_of_a_library_is_overridden(files: list[Names]) -> None:
    """A private method of a class is either called by the repository or overrides the library's."""
    called = {name for file in files for name in (*file.read, *(name for _, name in file.used))}
    unused = [
        f"{file.path}:{line} {name}" for file in files for line, name in file.methods if name not in called
    ]
    assert unused == []


def test_private_names_of_libraries_are_found() -> None:
    source = "from granian._granian import x\nimport flask\nflask.g._login_user = item._fixtureinfo"
    assert len(private_names_of_libraries([names_of("new.py", source)])) == 3
