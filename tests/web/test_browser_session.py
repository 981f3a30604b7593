"""Cookies over HTTPS, and the contents of the anonymous cookie."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest
from flask import Flask, Response, session

from app import config, create_app
from app.web.browser_session import browser_id, clear_sign_in, set_sign_in

HTTPS = "https://id.example.com"


@pytest.fixture
def secure_app(tmp_path: Path) -> Flask:
    """An application behind HTTPS; these tests do not use its database."""
    return create_app(
        config.load(
            {
                "DATABASE_URL": f"sqlite:///{tmp_path}/unused.sqlite3",
                "GATEHOUSE_BASE_URL": HTTPS,
                "GATEHOUSE_INSTANCE": str(tmp_path),
                "GATEHOUSE_SECRET_KEY": secrets.token_hex(32),
                "GATEHOUSE_MASTER_KEY": secrets.token_hex(32),
                "GATEHOUSE_JANITOR": "off",
            }
        )
    )


def test_https_cookies_have_the_host_prefix(secure_app: Flask) -> None:
    """SS-3."""
    with secure_app.test_request_context(base_url=HTTPS):
        response = Response()
        set_sign_in(response, "abcdefgh", "gth_ss_value")
        browser_id()
        secure_app.session_interface.save_session(secure_app, session._get_current_object(), response)
    for cookie, name in zip(
        response.headers.getlist("Set-Cookie"), ("__Host-gatehouse-abcdefgh", "__Host-gatehouse"), strict=True
    ):
        first, *flags = [part.strip() for part in cookie.split(";")]
        assert first.startswith(f"{name}=")
        assert set(flags) == {"Secure", "HttpOnly", "Path=/", "SameSite=Lax"}


def test_deleted_cookie_keeps_its_flags(secure_app: Flask) -> None:
    with secure_app.test_request_context(base_url=HTTPS):
        response = Response()
        clear_sign_in(response, "abcdefgh")
    cookie = response.headers["Set-Cookie"]
    assert cookie.startswith("__Host-gatehouse-abcdefgh=;")
    assert {"Secure", "HttpOnly", "Path=/", "Max-Age=0"} <= {part.strip() for part in cookie.split(";")}


def test_https_pages_send_hsts(secure_app: Flask) -> None:
    answer = secure_app.test_client().get("/login", base_url=HTTPS)
    assert answer.headers["Strict-Transport-Security"] == "max-age=31536000; includeSubDomains"
    assert "Set-Cookie" not in answer.headers


def test_browser_id_is_stable_and_unique(secure_app: Flask) -> None:
    with secure_app.test_request_context(base_url=HTTPS):
        first = browser_id()
        assert browser_id() == first
        assert dict(session) == {"browser": first}
    with secure_app.test_request_context(base_url=HTTPS):
        assert browser_id() != first


def test_request_without_session_use_sets_no_cookie(secure_app: Flask) -> None:
    with secure_app.test_request_context(base_url=HTTPS, headers={"Cookie": "__Host-gatehouse=forged"}):
        opened = session._get_current_object()
        assert dict(opened) == {}
        assert not opened.modified
