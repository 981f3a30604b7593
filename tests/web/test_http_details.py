"""HTTP details at every kind of path: CORS, preflight requests, ETags, double slashes, HEAD, OPTIONS, Retry-After."""

from __future__ import annotations

import re
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.exceptions import ServiceUnavailable, TooManyRequests

from app.operations.directory import lookups
from app.rules.errors import Unavailable
from tests.factories import Factory, MadeClient, bearer_header
from tests.support.cases import each

pytestmark = pytest.mark.either

LISTED, OTHER = "https://admin.acme.example", "https://evil.example"
ISSUER = "/organizations/acme"
DOCUMENTS = (
    "/oauth/jwks",
    f"{ISSUER}/oauth/jwks",
    "/.well-known/openid-configuration",
    f"{ISSUER}/.well-known/openid-configuration",
    f"/.well-known/oauth-authorization-server{ISSUER}",
    "/.well-known/oauth-protected-resource/management",
    "/openapi.json",
    "/api/v1/openapi.json",
)
APP_ENDPOINTS = tuple(
    f"{issuer}/oauth/{name}" for issuer in ("", ISSUER) for name in ("token", "revoke", "userinfo", "par")
)
API = ("/clients", "/api/v1/clients", "/api/v1/revoke", f"{ISSUER}/settings", "/users")
PAGES = ("/", "/portal/acme", f"{ISSUER}/login", "/oauth/authorize", "/oauth/introspect", "/healthz")


@pytest.fixture
def client(make: Factory) -> MadeClient:
    """Return a client of Acme, which lets LISTED call the management API."""
    make.root()
    acme = make.organization("acme", settings={"management_api": {"allowed_origins": [LISTED]}})
    return make.client(acme)


@pytest.fixture
def token(client: MadeClient, make: Factory) -> dict[str, str]:
    return bearer_header(make.bearer(client.organization))


def readable_by(answer: Any) -> str | None:
    """Return the origin whose pages may read the response."""
    assert "Access-Control-Allow-Credentials" not in answer.headers
    found: str | None = answer.headers.get("Access-Control-Allow-Origin")
    if found is not None and answer.request.method != "OPTIONS":
        exposed = answer.headers["Access-Control-Expose-Headers"]
        assert {"WWW-Authenticate", "Retry-After", "X-Request-Id"} <= set(exposed.split(", "))
    return found


@each(
    ("method", "path", "status"),
    [
        *(("POST", path, 400) for path in APP_ENDPOINTS if not path.endswith("userinfo")),
        *(("GET", path, 401) for path in APP_ENDPOINTS if path.endswith("userinfo")),
        ("GET", "/oauth/token", 405),
        ("POST", "/organizations/nobody/oauth/token", 400),
        ("GET", "/organizations/nobody/oauth/userinfo", 404),
        ("POST", "/oauth/register", 400),
        ("GET", "/organizations/nobody/.well-known/openid-configuration", 404),
        ("POST", "/oauth/jwks", 405),
        ("GET", "/clients", 401),
        ("GET", "/api/v1/clients", 401),
        ("PATCH", "/clients", 405),
        ("GET", "/api/v1/nothing", 404),
    ],
)
@each("origin", [OTHER, "null"])
def test_errors_of_app_endpoints_are_readable_by_every_page(
    http: FlaskClient, client: MadeClient, method: str, path: str, status: int, origin: str
) -> None:
    """CR-3: a web app sees the status, and so that its token has expired."""
    answer = http.open(path, method=method, headers={"Origin": origin} | bearer_header("expired"))
    assert (answer.status_code, readable_by(answer)) == (status, "*")


@each("path", PAGES)
@each("method", ["GET", "POST", "OPTIONS"])
def test_pages_and_server_endpoints_are_not_readable(
    http: FlaskClient, client: MadeClient, path: str, method: str
) -> None:
    """CR-1: errors included."""
    headers = {"Origin": OTHER, "Access-Control-Request-Method": "POST"}
    answer = http.open(path, method=method, headers=headers)
    assert not [name for name, _ in answer.headers if name.startswith("Access-Control")]


@pytest.mark.parametrize(
    ("paths", "methods", "headers"),
    [
        (DOCUMENTS, "GET, HEAD", "*"),
        (APP_ENDPOINTS, "GET, POST", "Authorization, Content-Type, DPoP"),
        (("/oauth/register", "/oauth/register/x"), "GET, POST, PUT, DELETE", "Authorization, Content-Type"),
        (
            API,
            "GET, HEAD, POST, PUT, DELETE",
            "Authorization, Content-Type, DPoP, Idempotency-Key, If-Match, If-None-Match",
        ),
    ],
)
def test_preflight_is_answered_alike_for_every_origin(
    http: FlaskClient, client: MadeClient, paths: tuple[str, ...], methods: str, headers: str
) -> None:
    """CR-2, CR-3, CR-4: the response reveals neither clients nor organizations."""
    for path in (*paths, *(path.replace("acme", "nobody") for path in paths)):
        for origin in (LISTED, OTHER):
            asking = {"Origin": origin, "Access-Control-Request-Method": "GET"}
            answer = http.options(path, headers=asking | {"Access-Control-Request-Headers": "x-y"})
            assert answer.status_code == 204, path
            assert readable_by(answer) in {"*", origin}
            assert answer.headers["Access-Control-Allow-Methods"] == methods
            assert answer.headers["Access-Control-Allow-Headers"] == headers


@pytest.mark.parametrize("path", DOCUMENTS)
def test_public_documents_are_readable_and_conditional(
    http: FlaskClient, client: MadeClient, path: str
) -> None:
    """CR-2."""
    answer = http.get(path, headers={"Origin": OTHER})
    assert (answer.status_code, answer.headers["Access-Control-Allow-Origin"]) == (200, "*")
    same = http.get(path, headers={"Origin": OTHER, "If-None-Match": answer.headers["ETag"]})
    assert (same.status_code, same.data) == (304, b"")
    assert same.headers["Access-Control-Allow-Origin"] == "*"


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_management_api_serves_listed_origins(
    http: FlaskClient, client: MadeClient, token: dict[str, str], method: str
) -> None:
    """CR-4: pages of other origins get an error that says what to do, and change nothing."""
    body = {"json": {"name": "X", "redirect_uris": ["https://x.example/"]}} if method == "POST" else {}

    def call(headers: dict[str, str]) -> Any:
        return http.open("/clients", method=method, headers=token | headers, **body)

    answer = call({"Origin": LISTED})
    assert (answer.status_code < 300, readable_by(answer)) == (True, LISTED)
    assert "Origin" in answer.headers["Vary"]
    same_origin = call({"Origin": "http://localhost"})
    assert (same_origin.status_code < 300, readable_by(same_origin)) == (True, None)
    before = len(http.get("/clients", headers=token).get_json()["data"])
    for origin in (OTHER, "null", f"{LISTED}:8443", LISTED.upper(), f"{LISTED}.evil.example"):
        refused = call({"Origin": origin})
        assert (refused.status_code, readable_by(refused)) == (403, "*"), origin
        assert refused.get_json()["error"] == "origin_not_allowed"
        assert "management_api.allowed_origins" in refused.get_json()["error_msg"]
    assert len(http.get("/clients", headers=token).get_json()["data"]) == before


@pytest.mark.parametrize(
    "path", ["/clients", "/me", "/clients/{id}", "/clients/{id}/credentials", f"{ISSUER}/settings"]
)
def test_if_none_match_returns_304_until_the_content_changes(
    http: FlaskClient, client: MadeClient, token: dict[str, str], path: str
) -> None:
    url = path.format(id=client.client_id)
    etag = http.get(url, headers=token).headers["ETag"]
    assert http.head(url, headers=token).headers["ETag"] == etag
    for held in (etag, f'"other", W/{etag}', "*"):
        same = http.get(url, headers=token | {"If-None-Match": held})
        assert (same.status_code, same.data, same.headers["ETag"]) == (304, b"", etag)
    assert http.get(url, headers=token | {"If-None-Match": '"v1"'}).status_code == 200
    if path == "/clients/{id}":
        # The version of the client does not change with its secrets, the content does.
        http.delete(f"{url}/credentials", headers=token)
        assert http.get(url, headers=token | {"If-None-Match": etag}).status_code == 200


@pytest.mark.parametrize(
    ("held", "status"),
    [
        ("{}", 200),
        ('{}, "v99"', 200),
        ('"v99",{}', 200),
        ('"v99", "other" , {}', 200),
        ('"v1"', 200),
        ('"v1-0000000000000000"', 200),
        ("*", 200),
        ("W/{}", 412),
        ('"v99", "v98"', 412),
        ('"other"', 412),
        ("{} {}", 400),
        ("v1", 400),
    ],
)
def test_if_match_accepts_any_of_several_etags(
    http: FlaskClient, client: MadeClient, token: dict[str, str], held: str, status: int
) -> None:
    """RFC 9110 section 13.1.1: compared strongly."""
    url = f"/clients/{client.client_id}"
    etag = http.get(url, headers=token).headers["ETag"]
    headers = token | {"If-Match": held.format(etag, etag)}
    for answer in (http.get(url, headers=headers), http.put(url, json={"name": "Quince"}, headers=headers)):
        assert answer.status_code == status
        assert answer.get_json()["success"] == (status == 200)


@pytest.mark.parametrize(
    "path",
    ["/clients//x", "/api//v1/clients", "/organizations//acme", "/clients/"],
)
@pytest.mark.parametrize("accept", ["*/*", "text/html"])
def test_double_slash_is_404_in_the_envelope(
    app: Flask, client: MadeClient, token: dict[str, str], path: str, accept: str
) -> None:
    for method in ("GET", "POST"):
        environ = {"REQUEST_URI": path, "RAW_URI": path}
        answer = app.test_client().open(
            "/",
            method=method,
            headers=token | {"Accept": accept},
            environ_overrides=environ | {"PATH_INFO": path},
        )
        assert (answer.status_code, answer.mimetype) == (404, "application/json")
        assert answer.get_json()["error"] == "not_found"


def test_every_route_answers_head_and_options(app: Flask, http: FlaskClient, client: MadeClient) -> None:
    for rule in app.url_map.iter_rules():
        methods = rule.methods or set()
        # The last route of SCIM answers it for the others.
        assert "OPTIONS" in methods or (rule.endpoint or "").startswith("scim."), rule
        assert "GET" not in methods or "HEAD" in methods, rule
    for path in (*DOCUMENTS, *APP_ENDPOINTS, *API, *PAGES):
        answer = http.options(path)
        assert (answer.status_code, answer.data) == (200, b""), path
        assert "OPTIONS" in re.split(", *", answer.headers["Allow"])


@each("path", [*API, *APP_ENDPOINTS, "/portal/acme", f"{ISSUER}/login"])
@each("error", [ServiceUnavailable, TooManyRequests, Unavailable])
def test_429_and_503_say_when_to_try_again(
    app: Flask,
    http: FlaskClient,
    client: MadeClient,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    error: type[Exception],
) -> None:
    def fail(*_values: Any, **_names: Any) -> None:
        raise error

    rule = app.url_map.bind("localhost").match(
        path, method="POST" if "POST" in _methods(app, path) else "GET"
    )
    monkeypatch.setitem(app.view_functions, rule[0], fail)
    answer = http.open(path, method="POST" if "POST" in _methods(app, path) else "GET")
    if answer.status_code != 400:  # A page without its CSRF token.
        assert answer.status_code in {429, 503}
        assert int(answer.headers["Retry-After"]) >= 1


def _methods(app: Flask, path: str) -> set[str]:
    return set(app.url_map.bind("localhost").allowed_methods(path))


def test_unavailable_fast_path_says_when_to_try_again(
    http: FlaskClient, client: MadeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_values: Any, **_names: Any) -> None:
        raise Unavailable

    monkeypatch.setattr(lookups, "get_organization_by_slug", away)
    for method, path in (("POST", f"{ISSUER}/oauth/token"), ("GET", f"{ISSUER}/oauth/userinfo")):
        form = {"grant_type": "client_credentials", "client_id": "x", "client_secret": "y"}
        answer = http.open(path, method=method, data=form, headers={"Origin": OTHER})
        assert (answer.status_code, readable_by(answer)) == (503, "*")
        assert int(answer.headers["Retry-After"]) >= 1
