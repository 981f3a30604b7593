"""Health endpoints: alive without a database, ready with one."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest
from flask import Flask
from flask.testing import FlaskClient
from MySQLdb import OperationalError

from app import config, create_app
from app.config import ROOT
from app.database import engines
from tests.support.databases import Database


def test_process_with_its_database_is_alive_and_ready(http: FlaskClient) -> None:
    for path in ("/healthz", "/readyz"):
        answer = http.get(path)
        assert answer.status_code == 200
        assert answer.get_json()["success"] is True
        assert answer.headers["Cache-Control"] == "no-store"


@pytest.mark.mariadb
def test_lost_connections_of_the_pool_are_replaced(
    context: Flask, http: FlaskClient, database: Database
) -> None:
    """The server closed them, as at a restart. SQLite has none."""
    with ExitStack() as open_together:
        for engine in engines():
            for _ in range(3):
                open_together.enter_context(closing(engine.raw_connection()))
    mine = "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
    for (number,) in database.query(mine):
        with suppress(OperationalError):  # a thread of another test closed it in the meantime
            database.query(f"KILL {number}")
    assert http.get("/readyz").status_code == 200


@pytest.mark.parametrize(
    "url", ["mysql://nobody:x@127.0.0.1:1/none", "sqlite:////nonexistent/folder/gatehouse.sqlite3"]
)
@pytest.mark.slow
def test_process_without_a_database_is_alive_and_sends_retry_after(url: str, tmp_path: Path) -> None:
    app = create_app(config.load({"GATEHOUSE_INSTANCE": str(tmp_path), "DATABASE_URL": url}))
    client = app.test_client()
    assert client.get("/healthz").status_code == 200
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) > 0
    body = answer.get_json()
    assert body["success"] is False
    assert body["error_code"] == 503
    assert body["errors"] == [], "as in every error of the API"
    assert body["request_id"] == answer.headers["X-Request-Id"]


def test_database_without_tables_is_not_ready(tmp_path: Path) -> None:
    app = create_app(config.load({"GATEHOUSE_INSTANCE": str(tmp_path)}))
    assert app.test_client().get("/readyz").status_code == 503


def test_version_is_in_health_openapi_and_script(http: FlaskClient) -> None:
    """The same everywhere, and versions of nothing else."""
    version = re.search(r'^version = "(0\.\d+\.\d+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    assert http.get("/healthz").get_json() == {"success": True, "data": "alive", "version": version[1]}
    assert not any(char.isdigit() for char in http.get("/readyz").text)
    assert http.get("/openapi.json").get_json()["info"]["version"] == version[1]
    said = subprocess.run(
        [sys.executable, "script/lib/serve.py", "--version"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == f"Gatehouse {version[1]}\n"


def test_openapi_document_is_compressed_for_callers_that_accept_it(http: FlaskClient) -> None:
    plain = http.get("/openapi.json", headers={"Accept-Encoding": "gzip;q=0, br"})
    small = http.get("/openapi.json", headers={"Accept-Encoding": "br, gzip"})
    assert "Content-Encoding" not in plain.headers and small.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(small.data) == plain.data and len(small.data) * 10 < len(plain.data)
    for answer in (plain, small):
        assert "Accept-Encoding" in answer.headers["Vary"]
    etags = {plain.headers["ETag"], small.headers["ETag"]}
    assert len(etags) == 2
    same = http.get(
        "/openapi.json", headers={"Accept-Encoding": "gzip", "If-None-Match": small.headers["ETag"]}
    )
    assert (same.status_code, same.data) == (304, b"")
