"""A worker loads at its start only what every request needs: other libraries cost time and memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Loaded at first use: passkeys, images, QR codes, outgoing requests, migrations, the OpenAPI document,
# metrics and traces.
RARE = (
    *("webauthn", "cbor2", "asn1crypto", "PIL", "segno", "urllib3", "alembic", "flask_migrate", "app.cli"),
    *("prometheus_client", "opentelemetry"),
)
_SAY = """
import gc, json, os, runpy, sys
sys.path[:0] = [{root!r}]
runpy.run_path("app/fast_path/preload.py")["load_libraries"]()
shared, kept = set(sys.modules), gc.get_freeze_count()
from wsgi import app
print(json.dumps({{
    "shared": sorted(shared),
    "own": sorted(set(sys.modules) - shared),
    "kept": gc.get_freeze_count() - kept,
    "collects": gc.isenabled(),
}}), flush=True)
os._exit(0)
"""


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the modules that a worker of script/server has loaded when it is ready."""
    code = _SAY.format(root=str(ROOT))
    environ = {
        "GATEHOUSE_INSTANCE": str(tmp_path_factory.mktemp("instance")),
        "GATEHOUSE_LOG_LEVEL": "error",
        "PATH": os.environ["PATH"],
    }
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environ, capture_output=True, check=True, timeout=60
    )
    loaded: dict[str, Any] = json.loads(done.stdout)
    return loaded


@pytest.mark.parametrize("name", RARE)
def test_rare_libraries_are_not_loaded_at_start(start: dict[str, Any], name: str) -> None:
    loaded = {*start["shared"], *start["own"]}
    assert not [module for module in loaded if module == name or module.startswith(f"{name}.")]


def test_libraries_are_loaded_before_the_fork(start: dict[str, Any]) -> None:
    """A worker itself imports only the application: app/fast_path/preload.py lists everything else."""
    own = [
        name
        for name in start["own"]
        if name.partition(".")[0] not in {"app", "wsgi", *sys.stdlib_module_names}
    ]
    assert not own
    assert not {"app", "wsgi"} & set(start["shared"])


def test_start_objects_are_frozen_for_garbage_collection(start: dict[str, Any]) -> None:
    """A full garbage collection would stop a thread of the worker for a tenth of a second."""
    assert start["collects"]
    assert start["kept"] > 50_000


def test_main_process_reads_the_configuration_without_the_application(tmp_path: Path) -> None:
    """On SIGHUP it forks workers that import the code as it is then, so it must not hold an older one."""
    code = (
        "import sys; sys.path[:0] = ['script/lib', '.']; import serve; serve.read_configuration(); "
        "print([name for name in sys.modules if name.partition('.')[0] == 'app'])"
    )
    environ = {
        "GATEHOUSE_INSTANCE": str(tmp_path),
        "GATEHOUSE_SMTP_URL": "smtp://127.0.0.1",
        "GATEHOUSE_MAIL_FROM": "gatehouse@example.com",
        "PATH": os.environ["PATH"],
    }
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environ, capture_output=True, check=True, timeout=60
    )
    assert done.stdout.strip() == b"[]"
