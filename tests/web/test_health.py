"""Health endpoints: alive without a database, ready with one."""

from __future__ import annotations

from pathlib import Path

import pytest
from flask.testing import FlaskClient

from app import config, create_app


def test_process_with_its_database_is_alive_and_ready(http: FlaskClient) -> None:
    for path in ("/healthz", "/readyz"):
        answer = http.get(path)
        assert answer.status_code == 200
        assert answer.get_json()["success"] is True
        assert answer.headers["Cache-Control"] == "no-store"


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
    assert body["request_id"] == answer.headers["X-Request-Id"]


def test_database_without_tables_is_not_ready(tmp_path: Path) -> None:
    app = create_app(config.load({"GATEHOUSE_INSTANCE": str(tmp_path)}))
    assert app.test_client().get("/readyz").status_code == 503


def test_health_endpoints_reveal_no_version(http: FlaskClient) -> None:
    for path in ("/healthz", "/readyz"):
        answer = http.get(path)
        assert not any(char.isdigit() for char in answer.text)
