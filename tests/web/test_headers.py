"""Headers of every response (HD-1 to HD-4, CJ-1)."""

from __future__ import annotations

import re
from typing import Any

import pytest
from flask import Flask

from app.config import ROOT
from app.web.headers import _harden

BASE = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


@pytest.fixture
def slug(make: Any) -> str:
    return make.organization("acme").slug


def test_redirecting_form_pages_have_no_form_action_and_keep_popups(http: Any, slug: str) -> None:
    """Chromium applies form-action to the whole redirect chain of a form."""
    for path in (
        f"/organizations/{slug}/login",
        f"/organizations/{slug}/logout",
        "/login",
        "/oauth/authorize",
    ):
        headers = http.get(path).headers
        assert headers["Content-Security-Policy"] == BASE
        assert headers["Cross-Origin-Opener-Policy"] == "unsafe-none"


def test_account_pages_may_post_only_to_the_service(make: Any, http: Any, slug: str) -> None:
    from app.operations.directory.lookups import get_organization_by_slug

    with http.application.app_context():
        organization = get_organization_by_slug(slug)
    make.sign_in(make.user(organization), http)
    headers = http.get(f"/organizations/{slug}/account/profile").headers
    assert headers["Content-Security-Policy"] == f"{BASE}; form-action 'self'"
    assert headers["Cross-Origin-Opener-Policy"] == "same-origin"


@pytest.mark.parametrize(
    "path", ["/organizations/acme/login", "/login", "/nothing", "/organizations/nobody/login"]
)
def test_pages_are_unframeable_uncached_and_send_no_referrer(http: Any, slug: str, path: str) -> None:
    headers = http.get(path, headers={"Accept": "text/html,*/*;q=0.8"}).headers
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"
    assert headers["Referrer-Policy"] == "same-origin"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "Cookie" in headers["Vary"]
    assert "camera=()" in headers["Permissions-Policy"]
    assert "Strict-Transport-Security" not in headers
    assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize(
    "path", ["/clients", "/organizations/acme/nothing", "/api/v1/nothing", "/oauth/nothing"]
)
def test_machine_responses_load_and_frame_nothing(http: Any, slug: str, path: str) -> None:
    answer = http.get(path)
    assert answer.mimetype == "application/json"
    assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'; frame-ancestors 'none'")
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_style_sheet_is_cached_and_has_no_page_headers(http: Any, app: Flask) -> None:
    with http.get("/static/app.css") as answer:
        headers = answer.headers
    assert headers["Cache-Control"] == "public, max-age=3600"
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_static_url_of_a_page_names_the_content_and_is_cached_for_a_year(http: Any, slug: str) -> None:
    [url] = re.findall(r'href="(/static/app\.css\?v=[0-9a-f]{12})"', http.get("/login").text)
    for path, kept in (
        (url, "public, max-age=31536000, immutable"),
        (f"{url}0", "no-cache"),
        ("/static/missing.css", "no-cache"),
    ):
        with http.get(path) as answer:
            assert answer.headers["Cache-Control"] == kept


def test_static_files_as_sent_are_small(http: Any) -> None:
    sizes: dict[str, int] = {}
    for path in (ROOT / "static").iterdir():
        with http.get(f"/static/{path.name}") as answer:
            assert (answer.status_code, answer.headers["Content-Type"].split(";")[0]) == (
                200,
                TYPES[path.suffix],
            )
            sizes[path.suffix] = sizes.get(path.suffix, 0) + len(answer.data)
    assert sizes[".css"] < 30_000
    assert sizes[".js"] < 15_000


def test_style_sheet_as_sent_keeps_the_descendant_selectors(http: Any) -> None:
    """A minifier that takes the space from ``.rail :is(b)`` makes it mean something else."""
    descendant = re.compile(r"[\w)\]*] :[a-z]")
    written = re.sub(r"/\*.*?\*/", "", (ROOT / "static" / "app.css").read_text(), flags=re.DOTALL)
    with http.get("/static/app.css") as answer:
        sent = answer.get_data(as_text=True)
    assert descendant.findall(sent) == descendant.findall(written)


def test_static_file_known_to_the_browser_is_not_sent_again(http: Any) -> None:
    with http.get("/static/app.css") as first:
        tag = first.headers["ETag"]
    with http.get("/static/app.css", headers={"If-None-Match": tag}) as answer:
        assert (answer.status_code, answer.data) == (304, b"")
    assert http.get("/static/../wsgi.py").status_code == 404


def test_hsts_is_sent_only_over_https(app: Flask) -> None:
    class Https:
        is_https = True

    with app.test_request_context("/login"):
        response = _harden(app, Https(), app.make_response("page"))  # type: ignore[arg-type]
    assert response.headers["Strict-Transport-Security"] == "max-age=31536000; includeSubDomains"


def test_no_header_names_the_software(http: Any, slug: str) -> None:
    headers = http.get("/login").headers
    assert "X-Powered-By" not in headers
    assert "Werkzeug" not in str(headers)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/login"),
        ("POST", "/oauth/token"),
        ("POST", "/oauth/introspect"),
        ("GET", "/oauth/userinfo"),
        ("GET", "/organizations/acme/oauth/jwks"),
        ("GET", "/api/v1/clients"),
        ("GET", "/nowhere"),
    ],
)
def test_server_header_is_replaced(http: Any, slug: str, method: str, path: str) -> None:
    """HD-4: also on responses that bypass Flask; without the header, the WSGI server would add its own."""
    headers = http.open(path, method=method).headers
    assert headers.getlist("Server") == [""]
