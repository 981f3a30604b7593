"""CORS: only a client's own origins can read its responses; ``tests/web/test_http_details.py`` has the errors."""

from __future__ import annotations

import pytest
from werkzeug.test import TestResponse

from tests.factories import bearer_header
from tests.oauth.conftest import SCOPES, Flow
from tests.support.cases import each

pytestmark = pytest.mark.either

OWN = "https://orchard.example"
FOREIGN = [
    "https://evil.example",
    "https://orchard.example.evil.example",
    "http://orchard.example",
    "null",
    "https://orchard.example:8443",
    "https://ORCHARD.example",
    "",
    "*",
]


def allowed(answer: TestResponse) -> str | None:
    assert "Access-Control-Allow-Credentials" not in answer.headers
    return answer.headers.get("Access-Control-Allow-Origin")


@pytest.fixture
def spa(flow: Flow) -> Flow:
    """A single-page application on its own origin."""
    return flow.other_client(type="spa", scopes=SCOPES, redirect_uris=[f"{OWN}/callback"])


def requests_of(spa: Flow, origin: str) -> dict[str, TestResponse]:
    """Return the responses to a page of the origin from every endpoint that a browser app calls."""
    own, headers = {"client_id": spa.client.client_id}, {"Origin": origin}
    tokens = spa.redeem(spa.code(scope=" ".join(SCOPES)), headers, **own).get_json()
    return {
        "token": spa.refresh(tokens["refresh_token"], headers, **own),
        "revoke": spa.http.post("/oauth/revoke", data=own | {"token": "x"}, headers=headers),
        "userinfo": spa.http.get("/oauth/userinfo", headers=headers | bearer_header(tokens["access_token"])),
    }


def test_registered_origin_can_read_the_clients_responses(spa: Flow) -> None:
    """CR-3."""
    for name, answer in requests_of(spa, OWN).items():
        assert allowed(answer) == OWN, name
        assert "Origin" in answer.headers["Vary"]


@pytest.mark.parametrize("origin", FOREIGN)
def test_other_origins_cannot_read_responses(spa: Flow, origin: str) -> None:
    """CR-3, CR-4: neither similar origins nor ``null``."""
    for name, answer in requests_of(spa, origin).items():
        assert allowed(answer) is None, name


def test_origin_of_another_client_is_not_allowed(spa: Flow) -> None:
    there = spa.other_client(type="spa", scopes=SCOPES, redirect_uris=["https://other.example/callback"])
    for answer in requests_of(there, OWN).values():
        assert allowed(answer) is None


def test_request_without_an_origin_gets_no_cors_headers(spa: Flow) -> None:
    answer = spa.http.post("/oauth/revoke", data={"client_id": spa.client.client_id, "token": "x"})
    assert allowed(answer) is None


@each(
    "path",
    [
        "/oauth/authorize",
        "/organizations/{slug}/login",
        "/organizations/{slug}/oauth/authorize/resume",
        "/portal/{slug}",
        "/organizations/{slug}/logout",
        "/oauth/introspect",
    ],
)
@each("method", ["GET", "POST", "OPTIONS"])
def test_pages_and_server_endpoints_allow_no_origin(spa: Flow, path: str, method: str) -> None:
    """CR-1: not even the service's own origin."""
    for origin in (OWN, "http://localhost", "null"):
        headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        answer = spa.http.open(path.format(slug=spa.organization.slug), method=method, headers=headers)
        assert not [name for name, _ in answer.headers if name.startswith("Access-Control")]
