"""Rejected authorization requests: an error page while client or redirect URI is invalid, else a redirect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flask.testing import FlaskClient

from app.operations.clients.clients import delete_client, update_client
from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.organizations.organizations import delete_organization, update_organization
from app.operations.organizations.settings import update_settings
from app.rules.authorization.authorization_request import challenge_of
from tests.factories import Factory
from tests.oauth.conftest import FAST_KEYS, REDIRECT_URI, SCOPES, VERIFIER, Flow, on_another_worker, query_of
from tests.support.cases import each
from tests.support.form_browser import Page
from tests.support.registering import register

pytestmark = pytest.mark.either

# Every request error and its code (RFC 6749 4.1.2.1, OIDC Core 3.1.2.6).
ERRORS: dict[str, tuple[str, dict[str, str | None]]] = {
    "no response_type": ("invalid_request", {"response_type": None}),
    "token": ("unsupported_response_type", {"response_type": "token"}),
    "hybrid": ("unsupported_response_type", {"response_type": "code id_token"}),
    "nonsense with quotes": ("unsupported_response_type", {"response_type": 'cödé"\\'}),
    "no PKCE": ("invalid_request", {"code_challenge": None, "code_challenge_method": None}),
    "no method": ("invalid_request", {"code_challenge_method": None}),
    "plain": ("invalid_request", {"code_challenge_method": "plain"}),
    "a short challenge": ("invalid_request", {"code_challenge": "a" * 42}),
    "a line feed after the challenge": ("invalid_request", {"code_challenge": "a" * 43 + "\n"}),
    "a scope that was not registered": ("invalid_scope", {"scope": "openid address"}),
    "a malformed scope": ("invalid_scope", {"scope": 'openid "x"'}),
    "an unknown prompt": ("invalid_request", {"prompt": "often"}),
    "prompt none and more": ("invalid_request", {"prompt": "none login"}),
    "prompt none twice": ("invalid_request", {"prompt": "none none"}),
    "a bad max_age": ("invalid_request", {"max_age": "soon"}),
    "fragment": ("invalid_request", {"response_mode": "fragment"}),
    "a request object": ("invalid_request_object", {"request": "e30.e30."}),
    "a request_uri": ("request_uri_not_supported", {"request_uri": "https://evil.example/"}),
    "a long state": ("invalid_request", {"state": "x" * 2049}),
    "a long nonce": ("invalid_request", {"nonce": "x" * 2049}),
    "prompt=none without a session": ("login_required", {"prompt": "none"}),
}
# Every invalid client or redirect URI.
WRONG: dict[str, dict[str, str | None]] = {
    "no client": {"client_id": None},
    "an unknown client": {"client_id": "cli_0abcd123_00000000000000000000000000"},
    "a malformed client": {"client_id": '"><script>'},
    "no redirect URI": {"redirect_uri": None},
    "an empty redirect URI": {"redirect_uri": ""},
    "an unregistered one": {"redirect_uri": "https://evil.example/"},
    "one with characters that Authlib cannot quote": {"redirect_uri": 'https://evil.example/"\\ü'},
    "javascript": {"redirect_uri": "javascript://orchard.example/%0aalert(1)"},
}


@pytest.fixture
def stranger(flow: Flow) -> Flow:
    """The flow in a signed-out browser."""
    return Flow(flow.app, flow.app.test_client(), flow.make, flow.client, flow.user)


def is_page(answer) -> bool:
    """Return whether the response is an HTML page with status 400 and no redirect."""
    assert answer.status_code == 400, (answer.status_code, answer.headers.get("Location"))
    assert "Location" not in answer.headers and "Refresh" not in answer.headers
    assert answer.mimetype == "text/html" and answer.headers["X-Frame-Options"] == "DENY"
    assert "http-equiv" not in answer.text
    return 'id="error-title"' in answer.text


@each(("code", "changes"), ERRORS.values(), ids=ERRORS.keys())
def test_errors_are_redirected_once_client_and_uri_are_valid(stranger: Flow, code: str, changes) -> None:
    """OR-1, MX-1, ST-1, PK-1, PK-2."""
    answer = stranger.authorize(**changes)
    assert answer.headers["Location"].startswith(REDIRECT_URI + "?")
    query = query_of(answer)
    assert (query["error"], query["iss"]) == (code, stranger.issuer)
    assert query["state"] == changes.get("state", "s")
    assert "code" not in query and query["error_description"].isascii()
    assert not set(query["error_description"]) & set('"\\')


@pytest.mark.parametrize("trust", ["unverified", "verified", "first_party"])
def test_errors_are_redirected_to_the_registered_uri_of_any_client(stranger: Flow, trust: str) -> None:
    """The client learns only the error at its own URL: no code, nothing about the user, and no referrer."""
    client = stranger.other_client(trust=trust, redirect_uris=[REDIRECT_URI])
    for changes in ({"scope": "openid other"}, {"prompt": "none"}):
        answer = client.authorize(**changes)
        assert set(query_of(answer)) == {"error", "error_description", "state", "iss"}
        assert answer.headers["Location"].startswith(REDIRECT_URI + "?error=")
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert "Set-Cookie" not in answer.headers


def register_itself(
    http: FlaskClient, make: Factory, **metadata: Any
) -> tuple[OrganizationSnapshot, dict[str, str | None]]:
    """Return an organization and the parameters of a request by a client that has just registered itself in it."""
    organization = make.organization(settings={"oauth": {"dynamic_registration": {"mode": "open"}}})
    client = register(http, organization, **metadata).get_json()
    return organization, {
        "response_type": "code",
        "client_id": client["client_id"],
        "redirect_uri": client["redirect_uris"][0],
        "scope": "openid",
        "state": "s<>",
        "code_challenge": challenge_of(VERIFIER),
        "code_challenge_method": "S256",
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"response_type": "token"},
        {"scope": "unknown"},
        {"prompt": "none"},
        {"response_mode": "form_post", "prompt": "none"},
    ],
)
def test_error_of_a_self_registered_client_shows_a_page_first(
    http: FlaskClient, make: Factory, changes: dict[str, str]
) -> None:
    """OR-2: anyone may register a client, so its redirect URI must not make this service an open redirector."""
    _, sent = register_itself(http, make)
    answer = http.get("/oauth/authorize", query_string=sent | changes)
    assert is_page(answer)
    assert 'id="error-return"' in answer.text and "weather.example" in answer.text
    assert "form_post.js" not in answer.text
    assert ("s&lt;&gt;" if "response_mode" in changes else "s%3C%3E") in answer.text


@pytest.mark.parametrize("reviewed", [{"trust": "verified"}, {"approval": "allowed"}])
def test_error_of_a_reviewed_self_registered_client_is_redirected(
    http: FlaskClient, make: Factory, reviewed: dict[str, str]
) -> None:
    organization, sent = register_itself(http, make)
    with http.application.app_context():
        update_client(make.actor(organization), str(sent["client_id"]), reviewed)
    answer = http.get("/oauth/authorize", query_string=sent | {"prompt": "none"})
    assert query_of(answer)["error"] == "login_required"


@pytest.mark.parametrize(
    ("method", "changes", "is_redirected"),
    [
        ("client_secret_basic", {"prompt": "none"}, True),
        ("client_secret_basic", {"scope": "unknown"}, False),
        ("none", {"prompt": "none"}, False),
    ],
)
def test_silent_request_of_a_self_registered_client_is_redirected_where_that_is_allowed(
    http: FlaskClient, make: Factory, method: str, changes: dict[str, str], is_redirected: bool
) -> None:
    """OR-2, OpenID Connect Core section 3.1.2.1: only for confidential clients, which can use prompt=none."""
    organization, sent = register_itself(http, make, token_endpoint_auth_method=method)
    with http.application.app_context():
        setting = {"oauth": {"consent": {"remember_self_registered": True}}}
        update_settings(make.system(organization), organization.slug, setting)
    answer = http.get("/oauth/authorize", query_string=sent | changes)
    if is_redirected:
        assert query_of(answer)["error"] == "login_required"
    else:
        assert is_page(answer) and 'id="error-return"' in answer.text


def test_denied_request_of_a_self_registered_client_is_redirected(http: FlaskClient, make: Factory) -> None:
    """The consent page has named the client and its host."""
    organization, sent = register_itself(http, make)
    make.sign_in(make.user(organization), http)
    page = http.get(http.get("/oauth/authorize", query_string=sent).headers["Location"])
    form = Page("", page.status_code, page.text).form_with("consent-deny")
    answer = http.post(form.action, data=dict(form.values) | {"decision": "deny"})
    assert query_of(answer)["error"] == "access_denied"


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
def test_errors_are_not_redirected_if_client_or_uri_is_invalid(stranger: Flow, wrong) -> None:
    """OR-1, RU-4: every error combined with every invalid client or redirect URI."""
    for changes in ({}, *(changes for _, changes in ERRORS.values())):
        assert is_page(stranger.authorize(**(changes | wrong)))


def test_post_request_gets_the_same_errors(stranger: Flow) -> None:
    good = stranger.http.post("/oauth/authorize", data=stranger.parameters(scope="other"))
    assert query_of(good)["error"] == "invalid_scope"
    for wrong in WRONG.values():
        assert is_page(stranger.http.post("/oauth/authorize", data=stranger.parameters(**wrong)))


@pytest.mark.parametrize("name", ["client_id", "redirect_uri"])
def test_repeated_client_id_or_redirect_uri_shows_an_error_page(stranger: Flow, name: str) -> None:
    """OR-1, ST-2: even with equal values, or one in the URL and one in the body."""
    parameters = stranger.parameters()
    twice = [*parameters.items(), (name, parameters[name])]
    assert is_page(stranger.http.get("/oauth/authorize", query_string=twice))
    both = stranger.http.post("/oauth/authorize", query_string={name: parameters[name]}, data=parameters)
    assert is_page(both)


@pytest.mark.parametrize("name", ["state", "scope", "nonce", "code_challenge", "prompt", "what"])
def test_other_repeated_parameters_are_reported_to_the_client(stranger: Flow, name: str) -> None:
    """ST-2."""
    parameters = {"nonce": "n", "prompt": "login", "what": "x"} | stranger.parameters()
    twice = [*parameters.items(), (name, "other")]
    assert query_of(stranger.http.get("/oauth/authorize", query_string=twice))["error"] == "invalid_request"
    both = stranger.http.post("/oauth/authorize", query_string={name: "other"}, data=parameters)
    assert query_of(both)["error"] == "invalid_request"


Change = Callable[[Flow], object]
GONE: dict[str, Change] = {
    "deleted": lambda flow: delete_client(flow.make.system(flow.organization), flow.client.client_id),
    "disabled": lambda flow: update_client(
        flow.make.system(flow.organization), flow.client.client_id, {"status": "disabled"}
    ),
    "its organization suspended": lambda flow: update_organization(
        flow.make.system(flow.organization), flow.organization.slug, {"status": "suspended"}
    ),
    "its organization deleted": lambda flow: delete_organization(
        flow.make.system(flow.organization), flow.organization.slug
    ),
    "its redirect URI removed": lambda flow: update_client(
        flow.make.system(flow.organization), flow.client.client_id, {"redirect_uris": [REDIRECT_URI + "2"]}
    ),
}


@pytest.mark.parametrize("change", GONE.values(), ids=GONE.keys())
def test_deleted_client_shows_an_error_page_at_once(flow: Flow, change: Change) -> None:
    """OR-1, F24: this worker had cached the client, and another worker deleted it."""
    flow.make.root()
    assert flow.authorize().status_code == 303
    with flow.app.app_context(), on_another_worker():
        change(flow)
    assert is_page(flow.authorize())
    assert is_page(flow.authorize(scope="other"))


def test_client_without_the_code_grant_gets_unauthorized_client(flow: Flow) -> None:
    with flow.app.app_context():
        from app.operations.organizations.settings import update_settings

        changes = {"oauth": {"grant_types": ["client_credentials"]}}
        update_settings(flow.make.system(flow.organization), flow.organization.slug, changes)
    assert query_of(flow.authorize())["error"] == "unauthorized_client"


def test_client_of_another_organization_is_unknown(flow: Flow, make: Factory) -> None:
    """MX-3: the same page as for an unknown client, except for the request ID."""
    there = make.organization(settings=FAST_KEYS)
    path = f"/organizations/{there.slug}/oauth/authorize"
    foreign = flow.http.get(path, query_string=flow.parameters())
    unknown = flow.http.get(path, query_string=flow.parameters(client_id="cli_x"))
    assert is_page(foreign) and is_page(unknown)

    def without_number(text: str) -> str:
        import re

        return re.sub(r"req_[0-9a-z]{26}", "", text)

    assert without_number(foreign.text) == without_number(unknown.text)
    own = flow.http.get(
        f"/organizations/{flow.organization.slug}/oauth/authorize", query_string=flow.parameters()
    )
    assert "code" in query_of(own)


NEAR = [
    "https://orchard.example/callback/",
    "https://orchard.example/Callback",
    "https://Orchard.example/callback",
    "HTTPS://orchard.example/callback",
    "http://orchard.example/callback",
    "https://orchard.example:443/callback",
    "https://orchard.example:8443/callback",
    "https://orchard.example//callback",
    "https://orchard.example/./callback",
    "https://orchard.example/x/../callback",
    "https://orchard.example/callback?",
    "https://orchard.example/callback?x=1",
    "https://orchard.example/callback#x",
    "https://orchard.example/callback%20",
    "https://orchard.example/callbac%6b",
    "https://orchard.example/callback%00",
    "https://orchard.example/callback ",
    " https://orchard.example/callback",
    "https://orchard.example/callback\n",
    "https://orchard.example/callback\t",
    "https://orchard.example\\callback",
    "https://orchard.example@evil.example/callback",
    "https://evil.example@orchard.example/callback",
    "https://orchard.example.evil.example/callback",
    "https://orchard.example./callback",
    "https://xorchard.example/callback",
    "https://orchard.example%2f@evil.example/callback",
    "https://orchard.exampl\u0435/callback",
    "//orchard.example/callback",
    "/callback",
    "callback",
    "https://orchard.example",
    "https://orchard.example/callback,https://evil.example",
]


def test_redirect_uri_is_compared_by_code_point(stranger: Flow) -> None:
    """RU-1."""
    for uri in NEAR:
        assert is_page(stranger.authorize(redirect_uri=uri)), uri
        assert is_page(stranger.authorize(redirect_uri=uri, prompt="none")), uri


def test_single_registered_redirect_uri_is_not_a_default(stranger: Flow) -> None:
    """RU-4."""
    assert is_page(stranger.authorize(redirect_uri=None))


@each(
    ("uri", "matches"),
    [
        ("http://127.0.0.1:49152/cb?x=1", True),
        ("http://127.0.0.1/cb?x=1", True),
        ("http://[::1]:50000/cb", True),
        ("http://localhost:3999/cb", True),
        ("com.example.app:/cb", True),
        ("http://127.0.0.1:49152/cb", False),
        ("http://127.0.0.1:49152/cb/?x=1", False),
        ("http://127.0.0.1:0/cb?x=1", False),
        ("http://127.0.0.1:65536/cb?x=1", False),
        ("http://127.0.0.1:8080@evil.example/cb?x=1", False),
        ("http://127.0.0.2:49152/cb?x=1", False),
        ("https://127.0.0.1:49152/cb?x=1", False),
        ("http://localhost.evil.example:3999/cb", False),
        ("com.example.app:/cb/", False),
        ("https://app.example:444/cb", False),
    ],
)
def test_native_client_may_vary_only_the_loopback_port(flow: Flow, uri: str, matches: bool) -> None:
    """RU-2."""
    native = flow.other_client(
        type="native",
        scopes=SCOPES,
        redirect_uris=[
            *("http://127.0.0.1/cb?x=1", "http://[::1]:8080/cb", "http://localhost/cb"),
            *("com.example.app:/cb", "https://app.example/cb"),
        ],
    )
    answer = native.authorize(redirect_uri=uri, prompt="none")
    if matches:
        assert answer.headers["Location"].startswith(uri)
        assert query_of(answer)["error"] == "consent_required"
    else:
        assert is_page(answer)


def test_other_clients_may_not_vary_the_loopback_port(flow: Flow) -> None:
    """RU-2."""
    web = flow.other_client(redirect_uris=["http://localhost:3000/cb"])
    assert is_page(web.authorize(redirect_uri="http://localhost:3001/cb"))
    assert web.authorize().status_code == 303
