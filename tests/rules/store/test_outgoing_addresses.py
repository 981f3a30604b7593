"""Outgoing addresses (SF-3): private addresses are rejected in every notation."""

from __future__ import annotations

import pytest

from app.rules.store.outgoing_http import (
    OutgoingRequestBlocked,
    Target,
    is_global_unicast,
    parse_target,
    require_public_addresses,
    require_web_port,
)
from tests.support.cases import each

NOT_GLOBAL = [
    "0.0.0.0",  # noqa: S104 - this socket is never bound
    "0.1.2.3",
    "10.0.0.1",
    "10.255.255.255",
    "100.64.0.1",
    "100.127.255.254",
    "127.0.0.1",
    "127.1.2.3",
    "169.254.169.254",
    "169.254.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.1",
    "192.0.0.170",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.0.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:93.184.216.34",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:10::1",
    "2001:20::1",
    "2001:db8::1",
    "2002:7f00:1::1",
    "2002:a9fe:a9fe::1",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
    "localhost",
    "",
]

NO_TARGET = [
    "http://rp.example/x",
    "HTTP://rp.example/x",
    "ftp://rp.example/x",
    "file:///etc/passwd",
    "//rp.example/x",
    "https:rp.example",
    "https:///x",
    "https://",
    "https://user@rp.example/",
    "https://user:pass@rp.example/",
    "https://rp.example@127.0.0.1/",
    "https://rp.example#@127.0.0.1/",
    "https://rp.example/#fragment",
    "https://rp.example\\@127.0.0.1/",
    "https://rp.example\t/",
    "https://rp.example/\n",
    "https://rp.example/\r\nX: y",
    "https://rp.example/a b",
    "https://rp.example/ä",
    "https://räksmörgås.example/",
    "https://127。0。0。1/",
    "https://rp_x.example/",
    "https://-rp.example/",
    "https://rp..example/",
    "https://rp.example./",
    "https://%6c%6f%63alhost/",
    "https://2130706433/",
    "https://0177.0.0.1/",
    "https://0x7f.0.0.1/",
    "https://0x7f000001/",
    "https://127.1/",
    "https://127.0.1/",
    "https://127.0.0.01/",
    "https://1.2.3.4.5/",
    "https://256.1.1.1/",
    "https://rp.example.0x1/",
    "https://[::1/",
    "https://[::ffff:127.0.0.999]/",
    "https://[fe80::1%25eth0]/",
    "https://rp.example:0/",
    "https://rp.example:65536/",
    "https://rp.example:443443/",
    "https://rp.example:x/",
    "https://rp.example:/",
    "https://rp.example/" + "x" * 2048,
]


@each("address", NOT_GLOBAL)
def test_private_host_is_rejected(address: str) -> None:
    """SF-2, SF-3."""
    assert not is_global_unicast(address)
    with pytest.raises(OutgoingRequestBlocked) as refused:
        require_public_addresses(parse_target("https://rp.example/"), [address], frozenset())
    assert refused.value.code == "address_not_allowed"


@each(
    "address",
    [
        "93.184.216.34",
        "8.8.8.8",
        "172.15.0.1",
        "172.32.0.1",
        "100.128.0.1",
        "223.255.255.254",
        "2606:2800:220:1::1",
        "2a00:1450:4001:81b::200e",
        "2001:200::1",
        "2003::1",
    ],
)
def test_public_host_is_accepted(address: str) -> None:
    assert is_global_unicast(address)
    require_public_addresses(parse_target("https://rp.example/"), [address], frozenset())


@each("url", NO_TARGET)
def test_only_plain_https_urls_are_accepted(url: str) -> None:
    """SF-2, SF-3: no other scheme, no user, no disguised IP address."""
    with pytest.raises(OutgoingRequestBlocked):
        parse_target(url)


@each(
    ("url", "target", "authority"),
    [
        ("https://rp.example", Target("rp.example", 443, "/"), "rp.example"),
        ("https://RP.example:443/a", Target("rp.example", 443, "/a"), "rp.example"),
        ("https://rp.example:8443/a?b=%20c", Target("rp.example", 8443, "/a?b=%20c"), "rp.example:8443"),
        ("https://rp.example?b", Target("rp.example", 443, "/?b"), "rp.example"),
        ("https://93.184.216.34/x", Target("93.184.216.34", 443, "/x"), "93.184.216.34"),
        ("https://[2606:2800::1]:444/", Target("2606:2800::1", 444, "/"), "[2606:2800::1]:444"),
    ],
)
def test_plain_url_is_parsed(url: str, target: Target, authority: str) -> None:
    assert parse_target(url) == target
    assert target.authority == authority


def test_one_private_address_among_public_ones_is_rejected() -> None:
    """SF-2: a name with both kinds could choose either one (DNS rebinding)."""
    target = parse_target("https://rp.example/")
    for addresses in (["93.184.216.34", "127.0.0.1"], ["2606:2800::1", "::1"], []):
        with pytest.raises(OutgoingRequestBlocked):
            require_public_addresses(target, addresses, frozenset())


def test_operator_can_allow_a_private_host() -> None:
    target = parse_target("https://jwks.internal:8443/keys")
    for allowed in ({"jwks.internal"}, {"jwks.internal:8443"}):
        require_public_addresses(target, ["10.0.0.5"], allowed)
    for allowed in ({"jwks.internal:443"}, {"internal"}, {"other.internal"}):
        with pytest.raises(OutgoingRequestBlocked):
            require_public_addresses(target, ["10.0.0.5"], allowed)
    require_public_addresses(parse_target("https://[fd00::5]:8443/"), ["fd00::5"], {"[fd00::5]:8443"})


@each(
    ("port", "is_allowed"),
    [(443, True), (1024, True), (8443, True), (65535, True)]
    + [(port, False) for port in (1, 22, 25, 80, 465, 636, 853, 993, 1023, 2049, 5061, 6000, 6667, 10080)],
)
def test_only_ports_of_the_web_are_called(port: int, is_allowed: bool) -> None:
    """SF-2: a service that speaks TLS on another port might take the request for its own protocol."""
    target = parse_target(f"https://rp.example:{port}/x")
    if is_allowed:
        require_web_port(target, ())
        return
    for allowed in ((), ("other.example",), ("rp.example:1",) if port != 1 else ()):
        with pytest.raises(OutgoingRequestBlocked, match="Use port 443"):
            require_web_port(target, allowed)
    for allowed in (("rp.example",), (f"rp.example:{port}",)):
        require_web_port(target, allowed)
