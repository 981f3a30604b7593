"""Parsing of OAuth requests: each parameter once, from the body, in UTF-8; anything else is a 4xx."""

from __future__ import annotations

from base64 import b64encode

import pytest
from flask import Flask
from flask.testing import FlaskClient

from tests.factories import Factory, MadeClient
from tests.support.cases import each

pytestmark = pytest.mark.either

FORM = "application/x-www-form-urlencoded"
ENDPOINTS = ("/oauth/token", "/oauth/introspect", "/oauth/revoke")


@pytest.fixture
def machine(make: Factory) -> MadeClient:
    """A client for client_credentials."""
    return make.machine(make.organization(), "reports:read")


def send(http: FlaskClient, path: str, body: bytes | str, header: str | None = None, kind: str = FORM):
    headers = {} if header is None else {"Authorization": header}
    return http.post(path, data=body, content_type=kind, headers=headers)


def good_body(machine: MadeClient) -> str:
    return f"grant_type=client_credentials&token=x&client_id={machine.client_id}&scope=reports:read"


def test_valid_request_succeeds(http: FlaskClient, machine: MadeClient) -> None:
    for path in ENDPOINTS:
        answer = send(http, path, good_body(machine), machine.basic["Authorization"])
        assert answer.status_code == 200, (path, answer.text)


BAD_BODIES = {
    "a parameter twice": "&grant_type=client_credentials",
    "a parameter twice, the same value": "&scope=reports:read",
    "a parameter twice, the second empty": "&scope=",
    "a parameter twice, other ones between": "&a=1&b=2&token=y",
    "an unknown parameter, twice": "&what=1&what=2",
    "NUL in a value": "&what=%00",
    "NUL in a name": "&wh%00at=1",
    "not UTF-8": "&what=%ff%fe",
    "a lone surrogate": "&what=%ed%a0%80",
    "raw bytes above ASCII": "&what=\u00fc",
    "more than 100 parameters": "".join(f"&p{number}=1" for number in range(101)),
}


@each("path", ENDPOINTS)
@each("tail", BAD_BODIES.values(), ids=BAD_BODIES.keys())
def test_malformed_body_is_an_invalid_request(
    http: FlaskClient, machine: MadeClient, path: str, tail: str
) -> None:
    """ST-2."""
    answer = send(http, path, good_body(machine) + tail, machine.basic["Authorization"])
    assert (answer.status_code, answer.get_json()["error"]) == (400, "invalid_request")


@pytest.mark.parametrize("path", ENDPOINTS)
def test_empty_and_non_empty_value_count_as_repeated(
    http: FlaskClient, machine: MadeClient, path: str
) -> None:
    """ST-2: in this order too, where a naive parser sees only one."""
    answer = send(http, path, "scope=&" + good_body(machine), machine.basic["Authorization"])
    assert (answer.status_code, answer.get_json()["error"]) == (400, "invalid_request")


@each("path", ENDPOINTS)
@each("query", ["grant_type=client_credentials", "x", "token=x", "%ff", "client_id=a"])
def test_query_parameters_are_rejected(http: FlaskClient, machine: MadeClient, path: str, query: str) -> None:
    """ST-2: URLs end up in logs. Parameters that are none of OAuth's are ignored: MSAL sends one."""
    answer = send(
        http, f"{path}?client-request-id=1&{query}", good_body(machine), machine.basic["Authorization"]
    )
    assert (answer.status_code, answer.get_json()["error"]) == (400, "invalid_request")
    good = send(http, f"{path}?client-request-id=1", good_body(machine), machine.basic["Authorization"])
    assert (
        good.status_code == send(http, path, good_body(machine), machine.basic["Authorization"]).status_code
    )


@each("path", ENDPOINTS)
@each("kind", ["application/json", "multipart/form-data; boundary=x", "text/plain", ""])
def test_other_content_types_are_rejected(
    http: FlaskClient, machine: MadeClient, path: str, kind: str
) -> None:
    answer = send(http, path, good_body(machine), machine.basic["Authorization"], kind)
    assert (answer.status_code, answer.get_json()["error"]) == (400, "invalid_request")


def test_charset_in_the_content_type_is_accepted(http: FlaskClient, machine: MadeClient) -> None:
    kind = f"{FORM}; charset=UTF-8"
    assert (
        send(http, "/oauth/token", good_body(machine), machine.basic["Authorization"], kind).status_code
        == 200
    )


def header_of(text: str | bytes) -> str:
    return "Basic " + b64encode(text if isinstance(text, bytes) else text.encode()).decode()


BAD_HEADERS = {
    "no credentials": "Basic",
    "only a space": "Basic ",
    "no base64": "Basic %%%",
    "base64 cut short": "Basic YQ",
    "no colon": header_of("client"),
    "not UTF-8": header_of(b"\xff\xfe:\xff"),
    "UTF-8 cut short": header_of(b"cli:\xe2\x82"),
    "a secret beyond ASCII": header_of("cli_x:gehëim☃"),
    "percent-encoded bytes that are no UTF-8": header_of("cli_x:%ff%fe"),
    "NUL": header_of(b"cli\0:x\0"),
    "line feeds": header_of(b"cli\r\n:x\r\n"),
    "a number for an id": header_of("0:0"),
    "an empty id and secret": header_of(":"),
    "very long": header_of("a" * 20_000),
    "Latin-1 in the header itself": "Basic \u00fc\u00fc\u00fc=",
    "another scheme": "Bearer abc",
    "Digest": 'Digest username="x"',
    "no scheme": "abc",
    "empty": "",
}


@each("path", ENDPOINTS)
@each("header", BAD_HEADERS.values(), ids=BAD_HEADERS.keys())
def test_malformed_authorization_header_is_401(http: FlaskClient, path: str, header: str) -> None:
    """CA-2: Authlib returns 500 for several of these. RFC 6749 section 5.2: the response has a challenge."""
    answer = send(http, path, "grant_type=client_credentials&token=x", header)
    assert (answer.status_code, answer.get_json()["error"]) == (401, "invalid_client")
    assert answer.headers.get("WWW-Authenticate") == ('Basic realm="gatehouse"' if header else None)


@pytest.mark.parametrize("path", ENDPOINTS)
def test_basic_credentials_are_form_decoded(http: FlaskClient, machine: MadeClient, path: str) -> None:
    """RFC 6749 section 2.3.1."""
    encoded = f"{machine.client_id}:{machine.secret}".replace("_", "%5F").replace("-", "%2D")
    assert send(http, path, good_body(machine), header_of(encoded)).status_code == 200


def test_authorization_scheme_is_case_insensitive(http: FlaskClient, machine: MadeClient) -> None:
    header = machine.basic["Authorization"].replace("Basic", "bASIC")
    assert send(http, "/oauth/token", good_body(machine), header).status_code == 200


@each("path", ["/oauth/token", "/oauth/introspect", "/oauth/revoke"])
@each("method", ["GET", "PUT", "DELETE", "PATCH"])
def test_other_methods_are_not_allowed(http: FlaskClient, path: str, method: str) -> None:
    answer = http.open(path, method=method)
    assert answer.status_code == 405
    assert "POST" in answer.headers["Allow"]


@pytest.mark.parametrize("path", ENDPOINTS)
def test_body_over_64_kib_is_rejected_unread(http: FlaskClient, path: str) -> None:
    """JS-2."""
    assert send(http, path, "token=" + "x" * 70_000, "Basic x").status_code == 413


@each("path", [*ENDPOINTS, "/oauth/userinfo", "/oauth/authorize", "/oauth/jwks"])
@each("slug", ["nobody", "%00", "%ff", "ü", "A" * 3000, "..%2f..", "%F0%9F%A6%89"])
def test_unknown_organization_is_never_a_500(http: FlaskClient, path: str, slug: str) -> None:
    method = "GET" if path in {"/oauth/authorize", "/oauth/jwks"} else "POST"
    answer = http.open(
        f"/organizations/{slug}{path}", method=method, data={"token": "x"} if method == "POST" else None
    )
    assert answer.status_code in {400, 401, 404}


@each("path", ENDPOINTS)
@each("slug", ["nobody", "%00", "%ff", "A" * 3000, "%F0%9F%A6%89"])
def test_authentication_at_an_unknown_organization_is_404(
    http: FlaskClient, machine: MadeClient, path: str, slug: str
) -> None:
    header = machine.basic["Authorization"]
    assert send(http, f"/organizations/{slug}{path}", good_body(machine), header).status_code == 404


@each("path", ENDPOINTS)
@each("length", ["9" * 5000, "-1", "+1", "1e3", "٣", "70000"])
def test_malformed_content_length_is_a_4xx(http: FlaskClient, path: str, length: str) -> None:
    environ = {"CONTENT_LENGTH": length}
    answer = http.post(path, data="token=x", content_type=FORM, environ_overrides=environ)
    assert 400 <= answer.status_code < 500


@pytest.mark.parametrize("path", ENDPOINTS)
def test_responses_are_not_cacheable(http: FlaskClient, machine: MadeClient, path: str) -> None:
    """HD-3, RFC 6749 section 5.1; errors too."""
    for header in (machine.basic["Authorization"], "Basic x"):
        answer = send(http, path, good_body(machine), header)
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["Pragma"] == "no-cache"
        assert answer.mimetype == "application/json"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_plain_http_is_rejected_on_an_https_instance(app: Flask, make: Factory, monkeypatch) -> None:
    """TR-1: rejected, not redirected; also behind a proxy that does not forward the scheme."""
    from dataclasses import replace

    machine = make.machine(make.organization(), "reports:read")
    https = replace(app.config["GATEHOUSE"], base_url="https://localhost")
    monkeypatch.setitem(app.config, "GATEHOUSE", https)
    for path in ENDPOINTS:
        answer = send(app.test_client(), path, good_body(machine), machine.basic["Authorization"])
        assert (answer.status_code, answer.get_json()["error"]) == (400, "invalid_request")
    assert app.test_client().get("/oauth/authorize").status_code == 400
