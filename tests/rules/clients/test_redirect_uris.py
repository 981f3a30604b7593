"""RU-3 and RU-6: which redirect URIs can be registered."""

from __future__ import annotations

from app.rules.clients.redirect_uris import is_loopback, redirect_uri_problem, web_url_problem
from tests.support.cases import each


@each(
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
def test_valid_redirect_uri_is_accepted(uri):
    for client_type in ("web", "spa", "native"):
        assert redirect_uri_problem(uri, client_type=client_type) is None


@each("uri", ["com.example.app:/callback", "com.example.app://oauth/callback", "org.gnu.emacs:/"])
def test_private_use_scheme_is_only_for_native_clients(uri):
    assert redirect_uri_problem(uri, client_type="native") is None
    problem = redirect_uri_problem(uri, client_type="web")
    assert problem is not None
    assert problem.code == "forbidden_scheme"


@each(
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
@each("client_type", ["web", "native"])
def test_invalid_redirect_uri_is_rejected(uri, code, client_type):
    """RU-3: Authlib's check accepts the first javascript URI, the wildcard, http and the line feed."""
    problem = redirect_uri_problem(uri, client_type=client_type)
    assert problem is not None
    assert problem.code == code


@each(
    "query",
    ["code=1", "state", "iss=x", "error=", "id_token=1", "response=x", "a=1&code=2", "a=1;state=2", "CODE=1",
     "%63ode=1", "st%61te=1"],
)  # fmt: skip
def test_reserved_query_parameter_is_rejected(query):
    """RU-6: parameter pollution."""
    problem = redirect_uri_problem(f"https://rp.example/cb?{query}", client_type="web")
    assert problem is not None
    assert problem.code == "reserved_parameter"


def test_organization_can_limit_hosts():
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


def test_loopback_uris_are_recognized():
    assert is_loopback("http://127.0.0.1:8080/cb")
    assert not is_loopback("https://app.example/cb")


@each(
    "uri",
    ["http://app.example/", "javascript:alert(1)", "https://169.254.169.254/x", "https://localhost/x",
     "https://127.0.0.1/x", "https://[::1]/x", "https://[::1]:8443/x", "com.example.app:/x", "app.example", "", 3,
     "https://app.example/x#y"],
)  # fmt: skip
def test_invalid_web_url_is_rejected(uri):
    assert web_url_problem(uri) is not None


def test_https_url_with_a_host_name_is_accepted():
    assert web_url_problem("https://app.example/terms?lang=en&code=x") is None
