"""The middleware answers plain requests itself and passes every other request on to Flask."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import urlencode

from flask import Flask
from msgspec.structs import replace

from app import config, create_app
from app.fast_path.middleware import Endpoints, FastPathMiddleware
from app.oauth.fast_path import ENDPOINTS
from tests.factories import Factory
from tests.oauth.conftest import Flow
from tests.support.cases import each

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


def send(app: Flask, request: dict[str, Any], endpoints: Endpoints = ENDPOINTS) -> tuple[str, bytes]:
    """Send the request; return (status line, or ``next application``; body)."""
    seen: list[str] = []

    def next_application(_environ: Any, start_response: Any) -> list[bytes]:
        start_response("next application", [])
        return [b""]

    middleware = FastPathMiddleware(app, next_application, endpoints)
    response = middleware(request, lambda status, _headers: seen.append(status))
    return seen[0], b"".join(response)


@each("host", ["localhost", "localhost:8000", "127.0.0.1", "127.0.0.1:8000", "[::1]", "[::1]:8000"])
def test_plain_request_is_answered(app: Flask, make: Factory, host: str) -> None:
    basic = make.machine(make.organization(), "clients:read").basic["Authorization"]
    status, body = send(app, environ(HTTP_HOST=host, HTTP_AUTHORIZATION=basic))
    assert status == "200 OK" and b"access_token" in body


def test_userinfo_is_answered_and_an_unknown_organization_passed_on(app: Flask) -> None:
    request = {"REQUEST_METHOD": "GET", "HTTP_AUTHORIZATION": "Bearer gth_at_unknown"}
    assert send(app, environ(PATH_INFO="/oauth/userinfo", **request))[0] == "401 Unauthorized"
    path = "/organizations/nobody/oauth/userinfo"
    assert send(app, environ(PATH_INFO=path, **request))[0] == "next application"


def test_request_under_an_organization_is_for_that_organization(app: Flask, make: Factory) -> None:
    here, elsewhere = make.organization(), make.organization()
    basic = make.machine(here, "clients:read").basic["Authorization"]
    path = f"/organizations/{here.slug}/oauth/token"
    assert send(app, environ(PATH_INFO=path, HTTP_AUTHORIZATION=basic))[0] == "200 OK"
    path = f"/organizations/{elsewhere.slug}/oauth/token"
    assert send(app, environ(PATH_INFO=path, HTTP_AUTHORIZATION=basic))[0] == "401 Unauthorized"


def test_code_is_issued_without_flask_only_if_no_page_is_needed(app: Flask, make: Factory) -> None:
    organization = make.organization()
    uri = "https://orchard.example/callback"
    client, user = make.client(organization, redirect_uris=[uri, f"{uri}?x=[1]"]), make.user(organization)
    flow = Flow(app, app.test_client(), make, client, user)
    flow.sign_in()
    cookie = f"{make.cookie_name(organization)}={make.sign_in(user).token}"

    def asked(cookie: str = cookie, **changes: str | None) -> dict[str, Any]:
        path, query = "/oauth/authorize", urlencode(flow.parameters(**changes))
        return environ(REQUEST_METHOD="GET", PATH_INFO=path, QUERY_STRING=query, HTTP_COOKIE=cookie)

    assert send(app, asked())[0] == "next application", "nobody has consented"
    flow.decide(flow.consent())
    assert send(app, asked())[0] == "303 See Other"
    assert send(app, asked(state="s" * 100, prompt="none"))[0] == "303 See Other"
    for other in (
        asked(""),
        asked(cookie.replace("gth_ss", "gth_at")),
        asked(prompt="consent"),
        asked(scope="openid email"),
        asked(scope="unknown"),
        asked(response_mode="form_post"),
        asked(redirect_uri="https://attacker.example/"),
        asked(redirect_uri=f"{uri}?x=[1]"),
        asked(client_id="unknown"),
        asked(code_challenge=None),
        asked() | {"REQUEST_METHOD": "POST"},
    ):
        assert send(app, other)[0] == "next application", other["QUERY_STRING"]


@each("endpoint", ["token", "introspect", "revoke"])
@each("body", [BODY, b"token=x", b""])
def test_unknown_organization_has_the_same_response_with_and_without_flask(
    app: Flask, endpoint: str, body: bytes
) -> None:
    request = environ(PATH_INFO=f"/organizations/nobody/oauth/{endpoint}", CONTENT_LENGTH=str(len(body)))
    status, answer = send(app, request | {"wsgi.input": io.BytesIO(body)})
    form = {"data": body, "content_type": request["CONTENT_TYPE"]}
    with mock.patch.object(FastPathMiddleware, "_post_endpoint", return_value=(None, None)):
        by_flask = app.test_client().post(request["PATH_INFO"], **form)
    assert (int(status[:3]), answer) == (by_flask.status_code, by_flask.data)


def test_redirect_has_the_same_headers_with_and_without_flask(app: Flask, make: Factory) -> None:
    organization = make.organization()
    client = make.client(
        organization, redirect_uris=["https://orchard.example/callback"], trust="first_party"
    )
    flow = Flow(app, app.test_client(), make, client, make.user(organization))
    flow.sign_in()
    with mock.patch.dict(ENDPOINTS.gets, authorize=lambda _: None):
        by_flask = flow.authorize()
    by_itself = flow.authorize()
    assert by_itself.status_code == by_flask.status_code == 303
    changing = {"X-Request-Id", "Location"}
    assert {name: value for name, value in by_itself.headers if name not in changing} == {
        name: value for name, value in by_flask.headers if name not in changing
    }


@each(
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
def test_any_other_request_is_passed_on(app: Flask, changes: dict[str, str]) -> None:
    assert send(app, environ(**changes))[0] == "next application"


def test_exception_in_a_handler_is_500_without_details(app: Flask) -> None:
    def fail(_call: Any) -> None:
        raise RuntimeError("the cause")

    status, body = send(app, environ(), replace(ENDPOINTS, posts={"token": fail}))
    assert status == "500 Internal Server Error" and b"server_error" in body and b"cause" not in body


def test_middleware_that_is_switched_off_is_not_installed(instance: Path, databases: Any) -> None:
    environment = {
        "DATABASE_URL": databases("sqlite").url,
        "GATEHOUSE_INSTANCE": str(instance),
        "GATEHOUSE_DISABLE_FAST_PATH": "middleware",
    }
    with mock.patch.object(FastPathMiddleware, "__call__") as called:
        client = create_app(config.load(environment)).test_client()
        assert client.post("/oauth/token", data={}).status_code in {400, 401}
    assert not called.called
