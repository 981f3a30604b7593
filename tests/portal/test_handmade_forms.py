"""Forged forms: hidden fields with unexpected values cause no server error."""

from __future__ import annotations

from typing import Any

import pytest

from app.portal.setting_texts import TOPICS
from tests.support.cases import each

pytestmark = pytest.mark.either


@pytest.mark.parametrize("base", ["", "[]", "null", '{"x": 1}', "{" * 5000])
def test_broken_base_is_ignored(ada: Any, base: str) -> None:
    ada.get("/settings/audit")

    answer = ada.send("/settings/audit", base=base, version="x", **{"audit.retention_days": "90"})

    assert answer.status_code == 303


@each("version", ["9" * 5000, "1" * 11, "٣", "-1"])
@each(
    ("path", "fields"),
    [
        ("/settings/general", {"name": "Acme"}),
        ("/settings/audit", {"audit.retention_days": "90"}),
        ("/settings/permissions/developer", {"name": "Developer"}),
    ],
)
def test_impossible_version_is_ignored(ada: Any, path: str, fields: dict[str, str], version: str) -> None:
    ada.get(path)

    assert ada.send(path, version=version, **fields).status_code == 303


@each("name", ["base", "mine"])
@each(
    "value",
    ['{"a": []}', '{"a": {"b": 1}}', '"a"', '"\\ud800"', "[1, {}]", "true", "1e400", "1" * 400, "NaN"],
)
def test_hidden_values_of_other_types_are_ignored(ada: Any, name: str, value: str) -> None:
    for topic in TOPICS:
        paths = TOPICS[topic].paths
        sent = "{" + ", ".join(f'"{path}": {value}' for path in paths) + "}"
        ada.get(f"/settings/{topic}")
        for version in ("1", "99"):
            answer = ada.send(f"/settings/{topic}", merge="1", version=version, **{name: sent})
            assert answer.status_code in {303, 400, 409}, (topic, version)
