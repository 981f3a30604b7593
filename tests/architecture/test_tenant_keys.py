"""TN-9: cache entries are read and written under the id of their organization."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cases import each

APP = Path(__file__).resolve().parents[2] / "app"
CACHES = {"BoundedCache", "ValidatedCache"}
METHODS = {"get", "put", "remove", "load"}
# Names of the first argument, the organization's id, where caches are used.
ORGANIZATION_IDS = {"organization_id", "organization.id", "client.organization.id", "actor.organization_id"}
ORGANIZATION_IDS |= {"parsed[0]", "*key"}


def loose_keys(source: str) -> Iterator[str]:
    """Yield each use of a cache whose first argument is not an organization's id."""
    tree = ast.parse(source)
    caches = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call):
            made_by = node.value.func.value if isinstance(node.value.func, ast.Subscript) else node.value.func
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if ast.unparse(made_by).rpartition(".")[2] in CACHES:
                caches |= {ast.unparse(target).rpartition(".")[2] for target in targets}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
            holder = ast.unparse(node.func.value).rpartition(".")[2]
            first = ast.unparse(node.args[0]) if node.args else "nothing"
            if holder in caches and first not in ORGANIZATION_IDS:
                yield f"{holder}.{node.func.attr}({first})"


@pytest.mark.slow
def test_tn9_caches_are_keyed_by_organization() -> None:
    assert {path.name: list(loose_keys(path.read_text())) for path in APP.rglob("*.py")} == {
        path.name: [] for path in APP.rglob("*.py")
    }


@each("first", ["client_id", "(organization_id, client_id)", "ip_address"])
def test_tn9_key_without_organization_is_detected(first: str) -> None:
    source = f"_cache: BoundedCache[int] = BoundedCache(10)\ndef find(): return _cache.get({first}, 1)"
    assert len(list(loose_keys(source))) == 1
