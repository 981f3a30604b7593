"""RU-1 to RU-6: what may be registered, and what matches."""

from __future__ import annotations

import pytest

from app.rules.redirect_uris import find_match, is_loopback, redirect_uri_problem, web_address_problem

REGISTERED = "https://app.example.com/auth/callback?tenant=1"

# RU-1: each is what a browser, a proxy or an attacker may take for the registered one.
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


def test_the_corpus_is_large_and_has_no_twins():
    assert len(set(NEAR_MISSES)) == len(NEAR_MISSES) >= 60


@pytest.mark.parametrize("sent", NEAR_MISSES)
@pytest.mark.parametrize("client_type", ["web", "native"])
def test_a_near_miss_matches_nothing(sent, client_type):
    assert find_match(sent, [REGISTERED], client_type=client_type) is None


def test_the_registered_string_itself_matches():
    others = ["https://other.example/cb", REGISTERED]
    assert find_match(REGISTERED, others, client_type="web") == REGISTERED
    assert find_match(REGISTERED, [], client_type="web") is None


@pytest.mark.parametrize(
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
def test_a_native_client_may_vary_the_loopback_port_alone(registered, sent):
    """RU-2, RFC 8252 section 7.3."""
    assert find_match(sent, [registered], client_type="native") == registered
    for other in ("web", "spa", "machine", "device"):
        assert find_match(sent, [registered], client_type=other) is None


@pytest.mark.parametrize(
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
def test_nothing_but_the_port_varies(registered, sent):
    assert find_match(sent, [registered], client_type="native") is None


@pytest.mark.parametrize(
    "uri",
    [
        "https://app.example.com",
        "https://app.example.com/",
        "https://app.example.com/callback",
        "https://app.example.com:8443/callback",
        "https://intranet/callback",
        "https://xn--bcher-kva.example/callback",
        "https://app.example.com/callback?tenant=1&flag",
        "https://app.example.com/a%20b/callback",
        "https://app.example.com/~me/call-back_1",
        "http://localhost:3000/api/auth/callback",
        "http://127.0.0.1/callback",
        "http://[::1]:8080/callback",
    ],
)
def test_what_any_client_may_register(uri):
    for client_type in ("web", "spa", "native"):
        assert redirect_uri_problem(uri, client_type=client_type) is None


@pytest.mark.parametrize(
    "uri", ["com.example.app:/callback", "com.example.app://oauth/callback", "org.gnu.emacs:/"]
)
def test_an_app_scheme_is_for_native_clients(uri):
    assert redirect_uri_problem(uri, client_type="native") is None
    problem = redirect_uri_problem(uri, client_type="web")
    assert problem is not None
    assert problem.code == "forbidden_scheme"


@pytest.mark.parametrize(
    ("uri", "code"),
    [
        (None, "wrong_type"),
        (7, "wrong_type"),
        ("", "required"),
        ("/callback", "not_absolute"),
        ("callback", "not_absolute"),
        ("https:", "no_host"),
        ("https://", "no_host"),
        ("https:///callback", "no_host"),
        ("https:app.example/cb", "no_host"),
        ("https://rp.example/cb#", "fragment"),
        ("https://rp.example/cb#x", "fragment"),
        ("https://user@rp.example/cb", "userinfo"),
        ("https://u:p@rp.example/cb", "userinfo"),
        ("https://*.rp.example/cb", "wildcard"),
        ("https://rp.example/*", "wildcard"),
        ("https://rp.example/cb\n", "forbidden_character"),
        ("https://rp.example/c b", "forbidden_character"),
        ("https://rp.example/\tcb", "forbidden_character"),
        ("https://rp.example/\x7f", "forbidden_character"),
        ("https://rp.example/<cb>", "forbidden_character"),
        ('https://rp.example/"cb', "forbidden_character"),
        ("https://rp.example/%0aalert", "forbidden_character"),
        ("https://rp.example/%00", "forbidden_character"),
        ("https://rp.example/%zz", "broken_escape"),
        ("https://rp.example/%", "broken_escape"),
        ("https://rp.example\\cb", "backslash"),
        ("https://rp.example/%5ccb", "backslash"),
        ("https://rp.example/../cb", "dot_segment"),
        ("https://rp.example/a/./cb", "dot_segment"),
        ("https://rp.example/a/..", "dot_segment"),
        ("https://rp.example/%2e%2e/cb", "dot_segment"),
        ("https://rp.example/.%2E/cb", "dot_segment"),
        ("https://rp.example/a%2f..%2fcb", "dot_segment"),
        ("https://rp.example/..%5ccb", "dot_segment"),
        ("https://rpä.example/cb", "not_ascii"),
        ("https://rp.example/ä", "not_ascii"),
        ("http://rp.example/cb", "not_https"),
        ("http://localhost.evil.example/cb", "not_https"),
        ("http://app.localhost/cb", "not_https"),
        ("http://127.0.0.2/cb", "ip_address"),
        ("http://127.1/cb", "ip_address"),
        ("https://10.0.0.1/cb", "ip_address"),
        ("https://192.0.2.7:8443/cb", "ip_address"),
        ("https://2130706433/cb", "ip_address"),
        ("https://0x7f000001/cb", "ip_address"),
        ("https://0x7f.1/cb", "ip_address"),
        ("https://[2001:db8::1]/cb", "ip_address"),
        ("https://[::ffff:127.0.0.1]/cb", "ip_address"),
        ("https://rp.example:0/cb", "bad_port"),
        ("https://rp.example:65536/cb", "bad_port"),
        ("https://rp.example:/cb", "bad_port"),
        ("https://rp.example:08443/cb", "bad_port"),
        ("https://rp.example:84a/cb", "bad_port"),
        ("https://rp.example./cb", "bad_host"),
        ("https://-rp.example/cb", "bad_host"),
        ("https://rp..example/cb", "bad_host"),
        ("https://rp_x.example/cb", "bad_host"),
        ("https://rp%2eexample/cb", "bad_host"),
        ("https://" + "a" * 64 + ".example/cb", "bad_host"),
        ("https://RP.example/cb", "upper_case"),
        ("HTTPS://rp.example/cb", "upper_case"),
        ("javascript://rp/%0aalert(1)", "forbidden_character"),
        ("javascript:alert(1)", "forbidden_scheme"),
        ("JavaScript:alert(1)", "forbidden_scheme"),
        ("data://x/y", "forbidden_scheme"),
        ("vbscript:x", "forbidden_scheme"),
        ("file:///etc/passwd", "forbidden_scheme"),
        ("blob:https://rp.example/x", "forbidden_scheme"),
        ("ftp://rp.example/cb", "forbidden_scheme"),
        ("myapp://callback", "forbidden_scheme"),
        ("urn:ietf:wg:oauth:2.0:oob", "forbidden_scheme"),
        ("https://rp.example/" + "a" * 2000, "too_long"),
    ],
)
@pytest.mark.parametrize("client_type", ["web", "native"])
def test_what_nobody_may_register(uri, code, client_type):
    """RU-3: Authlib's own check lets the first javascript one, the wildcard, http and the line feed through."""
    problem = redirect_uri_problem(uri, client_type=client_type)
    assert problem is not None
    assert problem.code == code


@pytest.mark.parametrize(
    "query",
    ["code=1", "state", "iss=x", "error=", "id_token=1", "response=x", "a=1&code=2", "a=1;state=2", "CODE=1",
     "%63ode=1", "st%61te=1"],
)  # fmt: skip
def test_a_query_may_not_hold_what_the_answer_brings(query):
    """RU-6: parameter pollution."""
    problem = redirect_uri_problem(f"https://rp.example/cb?{query}", client_type="web")
    assert problem is not None
    assert problem.code == "reserved_parameter"


def test_an_organization_may_narrow_the_hosts():
    allowed = ["login.acme.example", "*.apps.acme.example"]
    for uri in ("https://login.acme.example/cb", "https://a.b.apps.acme.example/cb", "http://127.0.0.1:1/cb"):
        assert redirect_uri_problem(uri, client_type="web", allowed_hosts=allowed) is None
    for uri in (
        "https://acme.example/cb",
        "https://apps.acme.example/cb",
        "https://evilapps.acme.example/cb",
    ):
        problem = redirect_uri_problem(uri, client_type="web", allowed_hosts=allowed)
        assert problem is not None
        assert problem.code == "host_not_allowed"


def test_what_leads_to_the_own_device_is_known():
    assert is_loopback("http://127.0.0.1:8080/cb")
    assert not is_loopback("https://app.example/cb")


@pytest.mark.parametrize(
    "uri",
    ["http://app.example/", "javascript:alert(1)", "https://169.254.169.254/x", "https://localhost/x",
     "https://127.0.0.1/x", "https://[::1]/x", "https://[::1]:8443/x", "com.example.app:/x", "app.example", "", 3,
     "https://app.example/x#y"],
)  # fmt: skip
def test_an_address_of_a_client_is_public_https(uri):
    assert web_address_problem(uri) is not None


def test_an_https_address_of_a_named_host_is_fine():
    assert web_address_problem("https://app.example/terms?lang=en&code=x") is None
