"""Request ids and logs: every response names its request; no log contains a secret, even at DEBUG (LG-1,
LG-2).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from flask import Flask

from app.rules import identifiers
from app.web.request_log import JsonFormatter, RequestLog, configure_logging, note, request_id

TOKEN = identifiers.new_token("at", "0123abcd")


@pytest.fixture
def plain() -> Flask:
    """A small separate application to test the middleware around it."""
    made = Flask("logged")

    @made.get("/hello/<path:_rest>")
    def hello(_rest: str) -> str:
        note(organization="acme", client="cli_x", user=None)
        return request_id() or ""

    @made.get("/broken")
    def broken() -> str:
        raise RuntimeError(f"no good: {TOKEN}")

    made.wsgi_app = RequestLog(made.wsgi_app)  # type: ignore[method-assign]
    return made


@pytest.fixture
def debug_logs() -> Iterator[None]:
    level = logging.getLogger().level
    configure_logging("debug")
    yield
    logging.getLogger().setLevel(level)


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_response_and_log_line_have_the_same_id(plain: Flask, capsys: pytest.CaptureFixture[str]) -> None:
    answer = plain.test_client().get("/hello/there?code=secret", headers={"X-Request-Id": "chosen"})
    (line,) = lines(capsys)
    assert answer.headers["X-Request-Id"] == line["request_id"] == answer.text
    assert line["request_id"].startswith("req_")
    assert line.items() >= {"method": "GET", "path": "/hello/there", "status": 200}.items()
    assert line.items() >= {"organization": "acme", "client": "cli_x"}.items()
    assert "user" not in line
    assert line["duration_ms"] >= 0
    assert line["time"].endswith("Z")


def test_request_ids_are_unique(plain: Flask) -> None:
    client = plain.test_client()
    assert len({client.get("/hello/x").headers["X-Request-Id"] for _ in range(200)}) == 200


def test_crash_has_a_request_id_and_reveals_no_secret(
    plain: Flask, capsys: pytest.CaptureFixture[str], debug_logs: None
) -> None:
    answer = plain.test_client().get("/broken")
    text = capsys.readouterr().err
    assert answer.status_code == 500
    assert answer.headers["X-Request-Id"] in text
    assert "RuntimeError" in text
    assert "gth_at_[redacted]" in text
    assert TOKEN not in text


def test_control_characters_cannot_forge_a_line(plain: Flask, capsys: pytest.CaptureFixture[str]) -> None:
    plain.test_client().get("/hello/a%0d%0a%7b%22status%22:200%7d%1b[31m%e2%80%ae")
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    assert text.isascii()
    assert text.rstrip("\n").isprintable()
    assert json.loads(text)["path"].startswith("/hello/a\r\n")


def test_token_in_the_path_is_redacted(plain: Flask, capsys: pytest.CaptureFixture[str]) -> None:
    plain.test_client().get(f"/hello/invite/{TOKEN}")
    assert lines(capsys)[0]["path"] == "/hello/invite/gth_at_[redacted]"


def test_long_path_is_truncated(plain: Flask, capsys: pytest.CaptureFixture[str]) -> None:
    plain.test_client().get("/hello/" + "x" * 5000)
    assert len(lines(capsys)[0]["path"]) < 600


def test_request_log_can_be_disabled(capsys: pytest.CaptureFixture[str]) -> None:
    quiet = Flask("quiet")
    quiet.wsgi_app = RequestLog(quiet.wsgi_app, enabled=False)  # type: ignore[method-assign]
    assert quiet.test_client().get("/").headers["X-Request-Id"]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("Issue token %r to %r", ({"access_token": TOKEN, "refresh_token": "plain"}, "client")),
        (f"got {TOKEN}", ()),
        ("headers %s", ({"Authorization": "Basic Y2xpOnNlY3JldA=="},)),
        ("form %s", ({"password": "plain"},)),
    ],
    ids=["a token answer", "a token in the text", "a header", "a password"],
)
def test_secret_logged_by_a_library_is_redacted(
    message: str, arguments: tuple[Any, ...], debug_logs: None, caplog: pytest.LogCaptureFixture
) -> None:
    """caplog is a foreign handler, so the record itself is redacted."""
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("authlib.oauth2").debug(message, *arguments)
    (record,) = caplog.records
    text = record.getMessage() + JsonFormatter().format(record)
    for secret in (TOKEN, "plain", "Y2xpOnNlY3JldA"):
        assert secret not in text
    assert "[redacted" in text


def test_traceback_in_a_log_is_redacted(debug_logs: None, caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError(TOKEN)
    except ValueError:
        logging.getLogger("other").exception("it failed")
    assert TOKEN not in caplog.text
    assert (
        "ValueError: gth_at_[redacted]" in json.loads(JsonFormatter().format(caplog.records[0]))["exception"]
    )


def test_record_without_a_secret_keeps_its_arguments(
    debug_logs: None, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("other").warning("%d of %s", 3, "four")
    assert caplog.records[0].args == (3, "four")


def test_mismatched_log_arguments_are_harmless(debug_logs: None, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("other").warning("%d", TOKEN)
    assert TOKEN not in caplog.text
    assert "do not fit" in caplog.text
