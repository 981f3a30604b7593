"""Forged forms: hidden fields with unexpected values cause no server error."""

from __future__ import annotations

import time
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


@each(
    "value",
    ['{"a": []}', '{"a": {"b": 1}}', '"a"', '"\\ud800"', "[1, {}]", "true", "1e400", "1" * 400, "NaN"],
)
def test_hidden_values_of_other_types_are_ignored(ada: Any, value: str) -> None:
    for topic in TOPICS:
        paths = TOPICS[topic].paths
        sent = "{" + ", ".join(f'"{path}": {value}' for path in paths) + "}"
        for version in ("99", "1"):
            answer = ada.send(f"/settings/{topic}", merge="1", version=version, base=sent, mine=sent)
            assert answer.status_code in {303, 400, 409}, (topic, version)


_FOREIGN = "is not part of this table. Reload the page and enter your changes again."


@each(
    ("path", "table", "row"),
    [
        ("/apis/new", "scopes", {"name": "a:read", "title": "Read", "description": ""}),
        ("/clients/{client}/roles", "app_roles", {"key": "editor", "name": "Editor"}),
        ("/clients/{client}/claims", "claim_mappings", {"claim": "dept", "source": "email"}),
    ],
)
@each("number", ["²", "٣", "9" * 5000, "00", "-1", "", "x", "10000", "0\n"])
def test_row_whose_number_cannot_be_read_is_an_error(
    ada: Any, make: Any, acme: Any, path: str, table: str, row: dict[str, str], number: str
) -> None:
    path = path.format(client=make.client(acme).client_id)
    good = {f"{table}-0-{name}": value for name, value in row.items()}
    bad = {f"{table}-{number}-{name}": value for name, value in row.items()}
    ada.get(path)
    fields = {"version": "1", "name": "API", "identifier": "urn:api", **good, **bad, f"{table}/²-x": "y"}

    answer = ada.send(path, **fields)

    assert answer.status_code == 400 and _FOREIGN in ada.text
    assert f'value="{next(iter(row.values()))}"' in answer.text, "what was typed is still there"


@each(
    ("path", "table", "cell", "most"),
    [
        ("/apis/new", "scopes", "name", 103),
        ("/clients/{client}/roles", "app_roles", "key", 52),
        ("/clients/{client}/claims", "claim_mappings", "claim", 52),
    ],
)
def test_number_of_rows_is_bounded(
    ada: Any, make: Any, acme: Any, path: str, table: str, cell: str, most: int
) -> None:
    path = path.format(client=make.client(acme).client_id)
    ada.get(path)
    fields = {"version": "1", "name": "API", "identifier": "urn:api"}
    many = {f"{table}-{number}-{cell}": "" for number in range(2000)}

    started = time.process_time()
    answer = ada.send(path, **fields, **many)

    assert time.process_time() - started < 1.5
    assert answer.status_code == 400
    assert f"You sent 2000 rows, but at most {most} are possible." in ada.text
    assert answer.text.count(f'name="{table}-') < most * 8
    enough = {f"{table}-{number}-{cell}": "" for number in range(most)}
    assert ada.send(path, **fields, **enough).status_code == 303
