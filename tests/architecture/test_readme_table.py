"""README's "Where does my change go?": its paths exist, and a client field takes the one line that it promises."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DESCRIBE = """
import json
from flask import Flask
from app import api
api.register(Flask("api"))
from app.api.openapi.document import build_document
schemas = build_document("http://127.0.0.1:8000")["components"]["schemas"]
names = ("Client", "NewClientInOrganization", "ClientChange")
print(json.dumps([sorted(schemas[name]["properties"]) for name in names]))
"""


def test_paths_of_the_table_exist() -> None:
    table = (ROOT / "README.md").read_text().partition("## Where does my change go?")[2]
    paths = [path.partition("<")[0] for path in re.findall(r"`([a-z_./<>]+)`", table) if "/" in path]
    assert len(paths) > 12
    for path in paths:
        assert (ROOT / "app" / path).exists() or (ROOT / path).exists(), path


@pytest.mark.slow
def test_client_field_needs_one_line(tmp_path: Path) -> None:
    """The line adds the field to requests, the JSON representation and the OpenAPI document."""
    shutil.copytree(ROOT / "app", tmp_path / "app", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    file = tmp_path / "app/rules/clients/client_metadata.py"
    source = file.read_text()
    line = '    support_uri: Annotated[WebUrl, described("Where users get help.")] | None = None\n'
    position = source.index("    description: ")
    file.write_text(source[:position] + line + source[position:])
    command = [sys.executable, "-c", DESCRIBE]
    run = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    for properties in json.loads(run.stdout):
        assert "support_uri" in properties
