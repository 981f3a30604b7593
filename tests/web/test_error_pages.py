"""Errors outside the interfaces: a page for browsers, the JSON envelope for APIs, never the cause."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask

from tests.support.cases import each

PROGRAMS = {"Accept": "application/json"}
BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/organizations/nobody/account/profile",
        "/organizations/acme/login/x",
        "/organizations/acme/nothing",
    ],
)
def test_browser_error_is_a_page(http: Any, app: Flask, path: str) -> None:
    answer = http.get(path, headers=BROWSER)
    assert (answer.status_code, answer.mimetype) == (404, "text/html")
    assert 'id="error-title"' in answer.text
    assert answer.headers["X-Request-Id"] in answer.text


@each(
    ("path", "headers"),
    [
        ("/clients/x/y/z", {}),
        ("/api/v1/nothing", {}),
        ("/organizations/acme/nothing", {}),
        ("/nothing", PROGRAMS),
        ("/nothing", {}),
        ("/nothing", {"Accept": "*/*"}),
        ("/nothing", BROWSER | {"Authorization": "Bearer gth_at_x"}),
        ("/nothing", BROWSER | {"Content-Type": "application/json"}),
        ("/.well-known/nothing", {}),
    ],
)
def test_api_error_is_the_envelope(http: Any, app: Flask, path: str, headers: dict[str, str]) -> None:
    answer = http.get(path, headers=headers)
    assert answer.status_code == 404
    assert answer.get_json() == {
        "success": False,
        "error_code": 404,
        "error_msg": "There is no resource at this path.",
        "error": "not_found",
        "errors": [],
        "request_id": answer.headers["X-Request-Id"],
    }


def test_revoke_at_wrong_path_is_the_envelope(http: Any, app: Flask) -> None:
    answer = http.post("/revoke", json={"token": "x"})
    assert (answer.status_code, answer.get_json()["error"]) == (404, "not_found")
    assert answer.headers["Cache-Control"] == "no-store"


def test_wrong_method_lists_the_allowed_ones(http: Any, app: Flask) -> None:
    answer = http.delete("/login")
    assert answer.status_code == 405
    assert "GET" in answer.headers["Allow"]


def test_foreign_host_is_rejected(http: Any, app: Flask) -> None:
    """TR-2, RP-2. It says what is wrong with a proxy that sends another name."""
    answer = http.get("/login", headers={"Host": "evil.example"})
    assert answer.status_code == 400
    assert "GATEHOUSE_TRUSTED_HOSTS" in answer.text and "evil" not in answer.text


def test_too_large_body_is_413(http: Any, app: Flask) -> None:
    answer = http.post("/organizations/acme/login", data={"email": "x" * 70_000})
    assert answer.status_code == 413


def test_server_error_does_not_reveal_its_cause(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    from app.account import sign_in

    def fail() -> None:
        raise RuntimeError("secret reason")

    monkeypatch.setattr(sign_in, "current_sessions", fail)
    monkeypatch.setitem(app.config, "PROPAGATE_EXCEPTIONS", False)
    answer = app.test_client().get("/login")
    assert answer.status_code == 500
    assert "secret reason" not in answer.text
    assert "internal_error" in answer.text
