"""Networks: addresses that one attacker can vary at no cost count as one."""

from __future__ import annotations

import pytest

from app.rules.people.networks import network_of


@pytest.mark.parametrize(
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
def test_addresses_fall_into_their_network(address, network):
    assert network_of(address) == network
