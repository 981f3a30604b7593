"""The lane: what machines call goes past Flask, and whatever is not plain goes on to it."""

from __future__ import annotations

import io
from typing import Any

import pytest
from flask import Flask

from app.oauth.lane import Lane
from tests.factories import Factory

BODY = b"grant_type=client_credentials"


def environ(**changes: Any) -> dict[str, Any]:
    """A plain token request."""
    good = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/oauth/token",
        "QUERY_STRING": "",
        "HTTP_HOST": "localhost",
        "CONTENT_TYPE": "application/x-www-form-urlencoded",
        "CONTENT_LENGTH": str(len(BODY)),
        "REMOTE_ADDR": "192.0.2.1",
        "wsgi.input": io.BytesIO(BODY),
        "wsgi.url_scheme": "http",
    }
    return good | changes


def send(app: Flask, request: dict[str, Any]) -> tuple[str, bytes]:
    """(status line, or ``on to Flask``; body)."""
    seen: list[str] = []

    def otherwise(_environ: Any, start_response: Any) -> list[bytes]:
        start_response("on to Flask", [])
        return [b""]

    answer = Lane(app, otherwise)(request, lambda status, _headers: seen.append(status))
    return seen[0], b"".join(answer)


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8000", "127.0.0.1", "127.0.0.1:8000", "[::1]", "[::1]:8000"]
)
def test_a_plain_request_takes_the_lane(app: Flask, make: Factory, host: str) -> None:
    basic = make.machine(make.organization(), "clients:read").basic["Authorization"]
    status, body = send(app, environ(HTTP_HOST=host, HTTP_AUTHORIZATION=basic))
    assert status == "200 OK" and b"access_token" in body


def test_the_lane_knows_the_organization_of_the_path(app: Flask, make: Factory) -> None:
    here, elsewhere = make.organization(), make.organization()
    basic = make.machine(here, "clients:read").basic["Authorization"]
    path = f"/organizations/{here.slug}/oauth/token"
    assert send(app, environ(PATH_INFO=path, HTTP_AUTHORIZATION=basic))[0] == "200 OK"
    path = f"/organizations/{elsewhere.slug}/oauth/token"
    assert send(app, environ(PATH_INFO=path, HTTP_AUTHORIZATION=basic))[0] == "401 Unauthorized"


@pytest.mark.parametrize(
    "changes",
    [
        {"REQUEST_METHOD": "GET"},
        {"REQUEST_METHOD": "HEAD", "PATH_INFO": "/oauth/jwks"},
        {"REQUEST_METHOD": "GET", "PATH_INFO": "/oauth/jwks", "HTTP_HOST": "attacker.example"},
        {"REQUEST_METHOD": "GET", "PATH_INFO": "/oauth/jwks/"},
        {"REQUEST_METHOD": "GET", "PATH_INFO": "/organizations//oauth/jwks"},
        {"REQUEST_METHOD": "GET", "PATH_INFO": "/organizations/nobody/oauth/jwks"},
        {"REQUEST_METHOD": "GET", "PATH_INFO": "/.well-known/jwks"},
        {"REQUEST_METHOD": "OPTIONS"},
        {"CONTENT_TYPE": "application/json"},
        {"CONTENT_TYPE": "application/x-www-form-urlencoded; charset=utf-8"},
        {"CONTENT_LENGTH": ""},
        {"CONTENT_LENGTH": "-1"},
        {"CONTENT_LENGTH": "65537"},
        {"HTTP_HOST": "attacker.example"},
        {"HTTP_HOST": "attacker.example:8000"},
        {"HTTP_HOST": ""},
        {"PATH_INFO": "/oauth/authorize"},
        {"PATH_INFO": "/oauth/token/"},
        {"PATH_INFO": "//oauth/token"},
        {"PATH_INFO": "/oauth/userinfo"},
    ],
)
def test_anything_else_goes_on_to_flask(app: Flask, changes: dict[str, str]) -> None:
    assert send(app, environ(**changes))[0] == "on to Flask"


def test_a_fault_in_the_lane_is_500_without_its_cause(
    app: Flask, make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_call: Any) -> None:
        raise RuntimeError("the cause")

    monkeypatch.setitem(__import__("app.oauth.lane", fromlist=["HANDLERS"]).HANDLERS, "token", fail)
    status, body = send(app, environ())
    assert status == "500 Internal Server Error" and b"server_error" in body and b"cause" not in body
