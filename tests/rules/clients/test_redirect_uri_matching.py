"""RU-1 and RU-2: a request can use only a registered redirect URI, compared exactly."""

from __future__ import annotations

from app.rules.clients.redirect_uris import match_redirect_uri
from tests.support.cases import each

REGISTERED = "https://app.example.com/auth/callback?tenant=1"

# RU-1: a browser, a proxy or an attacker may treat each of these as the registered URI.
NEAR_MISSES = [
    "",
    " ",
    " https://app.example.com/auth/callback?tenant=1",
    "https://app.example.com/auth/callback?tenant=1 ",
    "https://app.example.com/auth/callback?tenant=1\n",
    "https://app.example.com/auth/callback?tenant=1\r\n",
    "https://app.example.com/auth/callback?tenant=1\t",
    "https://app.example.com/auth/callback?tenant=1\x00",
    "https://app.example.com/auth/callback?tenant=1\x00.evil.example",
    "\thttps://app.example.com/auth/callback?tenant=1",
    "HTTPS://app.example.com/auth/callback?tenant=1",
    "Https://app.example.com/auth/callback?tenant=1",
    "https://APP.example.com/auth/callback?tenant=1",
    "https://app.Example.com/auth/callback?tenant=1",
    "https://app.example.com/Auth/callback?tenant=1",
    "https://app.example.com/auth/callback?Tenant=1",
    "http://app.example.com/auth/callback?tenant=1",
    "https:/app.example.com/auth/callback?tenant=1",
    "https:app.example.com/auth/callback?tenant=1",
    "https:///app.example.com/auth/callback?tenant=1",
    "//app.example.com/auth/callback?tenant=1",
    "/auth/callback?tenant=1",
    "app.example.com/auth/callback?tenant=1",
    "https://app.example.com:443/auth/callback?tenant=1",
    "https://app.example.com:/auth/callback?tenant=1",
    "https://app.example.com:8443/auth/callback?tenant=1",
    "https://app.example.com./auth/callback?tenant=1",
    "https://app.example.com.evil.example/auth/callback?tenant=1",
    "https://evil.example/app.example.com/auth/callback?tenant=1",
    "https://evilapp.example.com/auth/callback?tenant=1",
    "https://sub.app.example.com/auth/callback?tenant=1",
    "https://example.com/auth/callback?tenant=1",
    "https://app.example.com@evil.example/auth/callback?tenant=1",
    "https://user@app.example.com/auth/callback?tenant=1",
    "https://user:pass@app.example.com/auth/callback?tenant=1",
    "https://@app.example.com/auth/callback?tenant=1",
    "https://app.example.com\\@evil.example/auth/callback?tenant=1",
    "https://evil.example\\.app.example.com/auth/callback?tenant=1",
    "https://app.example.com\\auth\\callback?tenant=1",
    "https://app.example.com/auth\\callback?tenant=1",
    "https://app.example.com/auth/callback",
    "https://app.example.com/auth/callback/",
    "https://app.example.com/auth/callback/?tenant=1",
    "https://app.example.com/auth//callback?tenant=1",
    "https://app.example.com//auth/callback?tenant=1",
    "https://app.example.com/auth/callback/..?tenant=1",
    "https://app.example.com/auth/./callback?tenant=1",
    "https://app.example.com/auth/../auth/callback?tenant=1",
    "https://app.example.com/auth/%2e%2e/auth/callback?tenant=1",
    "https://app.example.com/auth/%2E/callback?tenant=1",
    "https://app.example.com/auth%2fcallback?tenant=1",
    "https://app.example.com/auth/%63allback?tenant=1",
    "https://app.example.com/%61uth/callback?tenant=1",
    "https://app.example.com/auth/callback%00?tenant=1",
    "https://app.example.com/auth/callback%0a?tenant=1",
    "https://app.example.com/auth/callback;x?tenant=1",
    "https://app.example.com/auth/callback/extra?tenant=1",
    "https://app.example.com/auth/callbac?tenant=1",
    "https://app.example.com/auth/callback?tenant=2",
    "https://app.example.com/auth/callback?tenant=1&x=1",
    "https://app.example.com/auth/callback?x=1&tenant=1",
    "https://app.example.com/auth/callback?tenant=1&",
    "https://app.example.com/auth/callback?tenant=1/",
    "https://app.example.com/auth/callback?tenant=%31",
    "https://app.example.com/auth/callback?tenant=1&tenant=1",
    "https://app.example.com/auth/callback?tenant",
    "https://app.example.com/auth/callback?tenant=",
    "https://app.example.com/auth/callback?tenant=1#",
    "https://app.example.com/auth/callback?tenant=1#fragment",
    "https://app.example.com/auth/callback?tenant=1%23",
    "https://app.example.com/auth/callback#?tenant=1",
    "https://xn--app-qla.example.com/auth/callback?tenant=1",
    "https://app.exаmple.com/auth/callback?tenant=1",
    "https://app。example.com/auth/callback?tenant=1",
    "https://app.example.com/auth/callback?tenant=１",
    "javascript://app.example.com/auth/callback?tenant=1",
    "com.example.app:/auth/callback?tenant=1",
    "https://127.0.0.1/auth/callback?tenant=1",
    "https://*.example.com/auth/callback?tenant=1",
]


def test_corpus_is_large_and_has_no_duplicates():
    assert len(set(NEAR_MISSES)) == len(NEAR_MISSES) >= 60


@each("sent", NEAR_MISSES)
@each("client_type", ["web", "native"])
def test_near_miss_matches_nothing(sent, client_type):
    assert match_redirect_uri(sent, [REGISTERED], client_type=client_type) is None


@each(
    "sent",
    ["https://app.example.com", "https://app.example.com/cb/", "https://app.example.com/cb?", "https://app.example.com/cb#",
     "https://app.example.com/CB", "https://app.example.com/cb?x", "https://app.example.com/c", "https://app.example.com/cb%20"],
)  # fmt: skip
def test_near_miss_of_a_plain_path_matches_nothing(sent):
    assert (
        match_redirect_uri(
            sent, ["https://app.example.com/cb", "https://app.example.com/"], client_type="web"
        )
        is None
    )


def test_registered_uri_matches_itself():
    others = ["https://other.example/cb", REGISTERED]
    assert match_redirect_uri(REGISTERED, others, client_type="web") == REGISTERED
    assert match_redirect_uri(REGISTERED, [], client_type="web") is None


@each(
    ("registered", "sent"),
    [
        ("http://127.0.0.1/callback", "http://127.0.0.1:49152/callback"),
        ("http://127.0.0.1:8080/callback", "http://127.0.0.1:1/callback"),
        ("http://127.0.0.1:8080/callback", "http://127.0.0.1/callback"),
        ("http://[::1]/callback?x=1", "http://[::1]:65535/callback?x=1"),
        ("http://localhost:3000/callback", "http://localhost:4000/callback"),
        ("http://localhost", "http://localhost:4000"),
    ],
)
def test_native_client_can_change_only_the_loopback_port(registered, sent):
    """RU-2, RFC 8252 section 7.3."""
    assert match_redirect_uri(sent, [registered], client_type="native") == registered
    for other in ("web", "spa", "machine", "device"):
        assert match_redirect_uri(sent, [registered], client_type=other) is None


@each(
    ("registered", "sent"),
    [
        ("http://127.0.0.1/callback", "http://127.0.0.1:8080/callback/"),
        ("http://127.0.0.1/callback", "http://127.0.0.1:8080/other"),
        ("http://127.0.0.1/callback", "http://127.0.0.1:8080/callback?x=1"),
        ("http://127.0.0.1/callback", "https://127.0.0.1:8080/callback"),
        ("http://127.0.0.1/callback", "http://localhost:8080/callback"),
        ("http://127.0.0.1/callback", "http://127.0.0.2:8080/callback"),
        ("http://127.0.0.1/callback", "http://127.0.0.1.evil.example:8080/callback"),
        ("http://127.0.0.1/callback", "http://127.0.0.1:80@evil.example/callback"),
        ("http://127.0.0.1/callback", "http://127.0.0.1:/callback"),
        ("http://127.0.0.1/callback", "http://127.0.0.1:0/callback"),
        ("http://127.0.0.1/callback", "http://127.0.0.1:080/callback"),
        ("http://127.0.0.1/callback", "http://127.0.0.1:65536/callback"),
        ("http://127.0.0.1/callback", "http://127.0.0.1:8080\n/callback"),
        ("http://127.0.0.1/callback", "http://127.1:8080/callback"),
        ("http://127.0.0.1/callback", "http://2130706433:8080/callback"),
        ("http://[::1]/callback", "http://[0:0:0:0:0:0:0:1]:8080/callback"),
        ("http://localhost/callback", "http://LOCALHOST:8080/callback"),
        ("http://localhost/callback", "http://app.localhost:8080/callback"),
        ("https://app.example.com/callback", "https://app.example.com:8443/callback"),
    ],
)
def test_loopback_match_ignores_only_the_port(registered, sent):
    assert match_redirect_uri(sent, [registered], client_type="native") is None
