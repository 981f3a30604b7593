"""Networks: IP addresses that one attacker can vary at no cost count as one."""

from __future__ import annotations

from app.rules.sign_in.passwords import IPV6_SITE_FACTOR, network_of, networks_of
from tests.support.cases import each


@each(
    ("address", "network"),
    [
        ("203.0.113.9", "203.0.113.0/24"),
        ("203.0.113.250", "203.0.113.0/24"),
        ("::ffff:203.0.113.9", "203.0.113.0/24"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        (None, "unknown"),
        ("", "unknown"),
        ("somewhere", "unknown"),
    ],
)
def test_ip_address_is_mapped_to_network(address, network):
    assert network_of(address) == network


@each(
    ("address", "networks"),
    [
        ("203.0.113.9", (("203.0.113.0/24", 1),)),
        ("::ffff:203.0.113.9", (("203.0.113.0/24", 1),)),
        ("2001:db8:1:2::9", (("2001:db8:1:2::/64", 1), ("2001:db8:1::/48", IPV6_SITE_FACTOR))),
        ("2001:db8:1:ffff::9", (("2001:db8:1:ffff::/64", 1), ("2001:db8:1::/48", IPV6_SITE_FACTOR))),
        ("2001:db8:2::9", (("2001:db8:2::/64", 1), ("2001:db8:2::/48", IPV6_SITE_FACTOR))),
        (None, (("unknown", 1),)),
    ],
)
def test_ipv6_address_also_counts_towards_its_site(address, networks):
    """LK-1: the owner of a /48 has 65,536 networks of /64."""
    assert networks_of(address) == networks
