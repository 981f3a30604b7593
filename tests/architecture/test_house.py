"""Architecture rules that import-linter and ruff cannot express."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OPERATIONS = ROOT / "app" / "operations"


def functions_of_operations() -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield (``module.function``, syntax tree) for every module-level function of the operations."""
    for path in sorted(OPERATIONS.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef):
                yield f"{path.stem}.{node.name}", node


def test_only_one_module_commits() -> None:
    committing = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "app").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "commit"
    }
    # The connections below it commit when the transaction tells them to.
    assert committing == {
        "app/operations/store/transactions.py",
        "app/fast_path/transaction_connection.py",
        "app/mysql_connection.py",
    }


def test_actor_is_the_first_parameter() -> None:
    """The actor is always an argument, with the same position and name."""
    misplaced = set()
    for name, function in functions_of_operations():
        parameters = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        positions = [
            index
            for index, parameter in enumerate(parameters)
            if parameter.arg == "actor"
            or (parameter.annotation is not None and ast.unparse(parameter.annotation) == "Actor")
        ]
        if positions not in ([], [0]) or (positions == [0] and parameters[0].arg not in {"actor", "_"}):
            misplaced.add(name)
    assert misplaced == set()


def test_sf1_one_module_sends_http_requests() -> None:
    """SF-1: import-linter checks packages of the standard library, not their modules."""
    clients = re.compile(
        r"\b(urllib\.request|http\.client|from http import client|from urllib import request)\b"
    )
    callers = {path.parent.name for path in (ROOT / "app").rglob("*.py") if clients.search(path.read_text())}
    # The isolation check of the command line sends requests to this service itself.
    assert callers == {"isolation", "store"}


def test_ck1_operations_use_the_database_clock() -> None:
    """CK-1: stored state is stamped with the database's time."""
    reads_machine_time = re.compile(r"datetime\.(now|utcnow)\(|date\.today\(|time\.time\(")
    found = {path.name for path in OPERATIONS.rglob("*.py") if reads_machine_time.search(path.read_text())}
    assert found <= {"clock.py"}
