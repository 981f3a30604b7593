"""Redirect responses keep the client's URI byte for byte, and added parameters cannot change its meaning."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from app.rules.clients.redirect_uris import add_query_parameters, get_display_host, get_web_origin
from tests.support.cases import each


@each(
    ("uri", "expected"),
    [
        ("https://rp.example/cb", "https://rp.example/cb?code=x"),
        ("https://rp.example", "https://rp.example?code=x"),
        ("https://rp.example/cb?k", "https://rp.example/cb?k&code=x"),
        ("https://rp.example/cb?k=", "https://rp.example/cb?k=&code=x"),
        ("https://rp.example/cb?k=a%20b&k=%C3%A9+", "https://rp.example/cb?k=a%20b&k=%C3%A9+&code=x"),
        ("https://rp.example/cb?", "https://rp.example/cb?code=x"),
        ("https://rp.example/cb?k&", "https://rp.example/cb?k&code=x"),
        ("com.example.app:/cb", "com.example.app:/cb?code=x"),
        ("http://127.0.0.1:49152/cb", "http://127.0.0.1:49152/cb?code=x"),
    ],
)
def test_existing_query_is_preserved(uri: str, expected: str) -> None:
    """RU-6: Authlib turns ``?k`` into ``?k=``."""
    assert add_query_parameters(uri, {"code": "x", "state": None}) == expected


STATES = [
    "",
    "a b",
    "a+b",
    "a&code=evil",
    "#frag",
    "%20",
    "ümlaut ☃ 🦉",
    "\r\nLocation: https://evil",
    "\x00",
    "x" * 2048,
    "'\"<>\\",
]


@each("state", STATES)
def test_value_round_trips_as_one_parameter(state: str) -> None:
    """ST-1."""
    uri = add_query_parameters(
        "https://rp.example/cb?k=1", {"code": "c", "state": state, "iss": "https://id.example"}
    )
    assert uri.isascii() and not set(uri) & set("\r\n #\0 ")
    query = parse_qs(urlsplit(uri).query, keep_blank_values=True, strict_parsing=True, errors="strict")
    assert query == {"k": ["1"], "code": ["c"], "state": [state], "iss": ["https://id.example"]}


def test_none_adds_no_parameter() -> None:
    """ST-1."""
    assert add_query_parameters("https://rp.example/cb", {"state": None}) == "https://rp.example/cb"


@each(
    ("uri", "host"),
    [
        ("https://rp.example/cb", "rp.example"),
        ("https://rp.example:8443/cb", "rp.example:8443"),
        ("https://rp.example?x=/", "rp.example"),
        ("http://[::1]:80/cb", "[::1]:80"),
        ("com.example.app:/cb", "com.example.app"),
        ("com.example.app://rp.example/cb", "com.example.app"),
    ],
)
def test_display_host(uri: str, host: str) -> None:
    """CO-1: an app's scheme is never shown as a host name."""
    assert get_display_host(uri) == host


@each(
    ("uri", "origin"),
    [
        ("https://rp.example/cb", "https://rp.example"),
        ("https://rp.example:443/cb", "https://rp.example"),
        ("http://localhost:80/cb", "http://localhost"),
        ("https://rp.example:80/cb", "https://rp.example:80"),
        ("https://rp.example:4430/cb", "https://rp.example:4430"),
        ("http://localhost:5173/cb?x", "http://localhost:5173"),
        ("com.example.app:/cb", None),
        ("null:/cb", None),
    ],
)
def test_web_origin_matches_the_origin_header(uri: str, origin: str | None) -> None:
    """CR-3: browsers omit the default port, and an app's scheme has no origin."""
    assert get_web_origin(uri) == origin
