"""Local paths: redirects never leave this service (OR-3)."""

from __future__ import annotations

from app.web.browser_session import own_path
from tests.support.cases import each

FOREIGN = [
    None,
    "",
    "//evil.example",
    "//evil.example/portal",
    "///evil.example",
    "/\\evil.example",
    "\\\\evil.example",
    "\\/evil.example",
    "/%09/evil.example",
    "/\t/evil.example",
    "/\n/evil.example",
    "/%0a/evil.example",
    "/%0d%0aLocation:%20https://evil.example",
    "/%2f%2fevil.example",
    "/%2fevil.example",
    "/%5cevil.example",
    "/%5c%5cevil.example",
    "https://evil.example",
    "https:evil.example",
    "https:/evil.example",
    "http:evil.example",
    "HTTPS://evil.example",
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)",
    "data:text/html,x",
    "vbscript:x",
    "mailto:eve@evil.example",
    ";@evil.example",
    "/;@evil.example",
    "@evil.example",
    "evil.example",
    "portal",
    "./portal",
    "../portal",
    "/portal/../../evil",
    "/portal/./x",
    "/portal//evil.example",
    "/portal#@evil.example",
    " /portal",
    "/portal ",
    "/por tal",
    "/portal\x00",
    "/portal\r\n",
    "/pörtal",
    "/portal?next=//x y",
    "/" + "a" * 1000,
]


@each("text", FOREIGN)
def test_foreign_path_returns_the_default(text):
    assert own_path(text, "/home") == "/home"


@each(
    "text",
    [
        "/",
        "/portal",
        "/portal/acme",
        "/portal/acme/clients/cli_01jd3k_abc/credentials",
        "/portal/acme/clients?q=calendar&status=active",
        "/portal/acme/clients?q=a%20b",
        "/organizations/acme/account/apps",
    ],
)
def test_local_path_is_accepted(text):
    assert own_path(text, "/home") == text


def test_path_corpus_is_large_enough():
    assert len(FOREIGN) >= 40
