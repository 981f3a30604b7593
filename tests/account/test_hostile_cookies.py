"""Cookies with hostile values: they lead to a page or a rejection, never to a server error."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask
from flask_login import current_user

from app.web import browser_session

PAGES = (
    "/",
    "/login",
    "/organizations/{}/login",
    "/organizations/{}/account/profile",
    "/nothing",
    "/portal/{}/clients",
)
VALUES = [
    *("", "x", "x|é", "é|x", "|", "||", "x|" + "0" * 128, "\x00", "a\x00b", '"', '"\\777"', "%00", "=;="),
    *("\xff\xfe", "\xc3\x28", "\xed\xa0\x80", "gth_ss_" + "é" * 40, "x" * 60_000, "1|" * 5_000),
]  # As WSGI has them: each character is a byte.


def ask(app: Flask, path: str, cookies: str) -> Any:
    return app.test_client(use_cookies=False).get(path, environ_overrides={"HTTP_COOKIE": cookies})


@pytest.mark.parametrize("value", VALUES, ids=lambda value: ascii(value[:12]))
def test_hostile_cookie_value_causes_no_error(make: Any, app: Flask, acme: Any, value: str) -> None:
    names = (
        "remember_token",
        "session",
        "gatehouse",
        make.cookie_name(acme),
        "gatehouse-",
        "gatehouse-\xff",
        "é",
    )
    for path in PAGES:
        for cookies in (
            *(f"{name}={value}" for name in names),
            "; ".join(f"{name}={value}" for name in names),
            value,
        ):
            answer = ask(app, path.format(acme.slug), cookies)
            assert answer.status_code in {200, 302, 303, 404}, (path, cookies[:40])


@pytest.mark.parametrize("path", PAGES)
def test_many_cookies_cause_no_error(app: Flask, acme: Any, path: str) -> None:
    cookies = "; ".join(f"gatehouse-{number:08x}=gth_ss_{number}" for number in range(2_000))
    assert ask(app, path.format(acme.slug), cookies).status_code in {200, 302, 303, 404}


def test_page_without_user_reads_no_session(
    make: Any, app: Flask, acme: Any, ada: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the error page of a failed database would query sessions."""
    monkeypatch.setattr(browser_session, "find_session", lambda token: pytest.fail("looked for a sign-in"))
    assert ask(app, "/nothing", f"{make.cookie_name(acme)}=gth_ss_x").status_code == 404


def test_remember_cookie_does_not_affect_current_user(make: Any, app: Flask, acme: Any, ada: Any) -> None:
    token = make.sign_in(ada, app.test_client()).token
    cookies = f"remember_token=x|\xe9; {make.cookie_name(acme)}={token}"
    path = f"/organizations/{acme.slug}/account/profile"
    with app.test_request_context(path, environ_overrides={"HTTP_COOKIE": cookies}):
        assert current_user.actor.label == ada.email
