"""Clients that generators make from the OpenAPI document, used without edits: run by ``script/test clients``.

openapi-python-client, which needs no Java, is tested in ``tests/journeys/test_generated_client.py``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import requests

from tests.factories import Factory
from tests.journeys.clients.quickstart import PROGRAMS, PYTHON
from tests.support.servers import LiveServer

pytestmark = pytest.mark.live
HERE = Path(__file__).parent


def generate(folder: Path, *arguments: str) -> None:
    """Execute openapi-generator, with its default options."""
    run(
        folder,
        "java",
        "-jar",
        f"{PROGRAMS}/openapi-generator-cli.jar",
        "generate",
        "-i",
        "openapi.json",
        *arguments,
    )


def build_python(folder: Path) -> tuple[str, ...]:
    """Generate the package, and return the command of the program that uses it."""
    generate(folder, "-g", "python", "-o", ".")
    return (*PYTHON, "openapi_generator.py")


def build_typescript_fetch(folder: Path) -> tuple[str, ...]:
    """Generate the sources, compile them with the program, and return its command."""
    generate(folder, "-g", "typescript-fetch", "-o", "generated")
    return compiled(folder, "typescript_fetch")


def build_openapi_typescript(folder: Path) -> tuple[str, ...]:
    """Generate the types, compile the program with them, and return its command."""
    run(folder, "node_modules/.bin/openapi-typescript", "openapi.json", "-o", "generated.ts")
    return compiled(folder, "openapi_typescript")


def compiled(folder: Path, program: str) -> tuple[str, ...]:
    """Compile the program with ``strict``, as ``tsconfig.json`` says, and return its command."""
    (folder / f"{program}.ts").rename(folder / "program.ts")
    run(folder, "node_modules/.bin/tsc")
    return ("node", "built/program.js")


def run(folder: Path, *command: str, **environment: str) -> None:
    """Execute the command in the folder."""
    ended = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-4000:]


@pytest.mark.parametrize("build", [build_python, build_typescript_fetch, build_openapi_typescript])
def test_generated_client_manages_clients_and_reads_errors(
    live_server: LiveServer, live_make: Factory, tmp_path: Path, build: Callable[[Path], tuple[str, ...]]
) -> None:
    for file in HERE.iterdir():
        if file.is_file():
            shutil.copy(file, tmp_path)
    (tmp_path / "node_modules").symlink_to(HERE / "node_modules")
    (tmp_path / "openapi.json").write_text(requests.get(f"{live_server.url}/openapi.json", timeout=60).text)
    token = live_make.bearer(live_make.organization())
    run(
        tmp_path,
        *build(tmp_path),
        BASE=live_server.url,
        TOKEN=token,
        PYTHONPATH=f"{tmp_path}:{PROGRAMS}/python",
    )
