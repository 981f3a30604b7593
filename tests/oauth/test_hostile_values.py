"""Hostile values for every parameter of every endpoint: always a 4xx, never a 500, never echoed."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from typing import Any

import pytest
from flask.testing import FlaskClient

from tests.factories import bearer_header
from tests.oauth.conftest import Flow
from tests.support.cases import each

pytestmark = pytest.mark.either

ENDPOINTS = ("/oauth/token", "/oauth/introspect", "/oauth/revoke")
HOSTILE = [
    "\0",
    "a\0b",
    "ü☃🦉",
    "'; DROP TABLE users; --",
    '"\\',
    "\r\nSet-Cookie: a=b",
    "x" * 5000,
    "0",
    "null",
    "[]",
    "{}",
    " ",
    "%00",
]


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_values_are_never_a_500(flow: Flow, value: str) -> None:
    """JS-6, TK-3: any parameter of any endpoint, with each client authentication method."""
    own = {"client_id": flow.client.client_id}
    names = (
        "grant_type",
        "code",
        "redirect_uri",
        "code_verifier",
        "refresh_token",
        "scope",
        "token",
        "token_type_hint",
    )
    for grant_type in ("authorization_code", "refresh_token", "client_credentials"):
        for name in (*names, "client_id", "client_secret", "resource", "audience"):
            for path in ENDPOINTS:
                form = {
                    "grant_type": grant_type,
                    "token": "x",
                    "code": "x",
                    "refresh_token": "x",
                    name: value,
                }
                basic = flow.http.post(path, data=form, headers=flow.client.basic)
                posted = flow.http.post(path, data=own | {"client_secret": flow.client.secret} | form)
                for answer in (basic, posted):
                    assert answer.status_code in {200, 400, 401, 429}, (
                        path,
                        name,
                        answer.status_code,
                        answer.text,
                    )
                    description = answer.get_json().get("error_description", "")
                    assert description.isascii() and not set(description) & set('"\\')


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_authorization_requests_are_never_a_500(flow: Flow, value: str) -> None:
    names = (
        *flow.parameters(),
        "nonce",
        "prompt",
        "max_age",
        "login_hint",
        "ui_locales",
        "response_mode",
        "request",
    )
    for name in names:
        for method in ("GET", "POST"):
            sent = flow.parameters(**{name: value})
            place = {"query_string": sent} if method == "GET" else {"data": sent}
            answer = flow.http.open("/oauth/authorize", method=method, **place)
            assert answer.status_code in {303, 400}, (name, method, answer.status_code)


@pytest.mark.parametrize(
    "header",
    [
        "Bearer",
        "Bearer ",
        "Bearer \u00fc",
        "Basic x",
        "",
        "Bearer a b",
        "Bearer " + "x" * 9000,
        "Bearer e30.e30.e30",
        "Bearer " + "." * 2,
    ],
)
def test_hostile_userinfo_requests_are_a_401(http: FlaskClient, header: str) -> None:
    for method in ("GET", "POST"):
        answer = http.open("/oauth/userinfo", method=method, headers={"Authorization": header})
        assert answer.status_code == 401
        assert answer.headers["WWW-Authenticate"].startswith('Bearer realm="gatehouse"')


@each("name", ["\ud800", "ü", "a\0b", "x" * 5000, "", 5, None, [], {}])
@each("client_id", ["https://a.example/app", "\ud800", 5])
def test_tokens_with_hostile_claims_are_unknown(flow: Flow, name: Any, client_id: Any) -> None:
    """TK-3: JWT claims are untrusted, including unpaired surrogates in JSON escapes."""
    claims = json.dumps({"client_id": client_id, "organization_id": name}).encode()
    token = f"e30.{urlsafe_b64encode(claims).decode().rstrip('=')}.e30"
    for path in ("/oauth/userinfo", "/api/v1/clients"):
        assert flow.http.get(path, headers=bearer_header(token)).status_code == 401
    told = flow.http.post("/oauth/introspect", data={"token": token}, headers=flow.client.basic)
    assert told.get_json() == {"active": False}
    assert (
        flow.http.post("/oauth/revoke", data={"token": token}, headers=flow.client.basic).status_code == 200
    )
