"""Networks: the part of an address that one attacker can vary at no cost is left out when attempts are counted.

The one rule: whoever is counted by network is counted by the /24 of an IPv4 address and by the /64 of an IPv6 one
(LK-1); of an IPv6 one by its /48 too, of which one customer can have all 65,536 networks, with ``WIDER`` times as much
let through, since some providers put many customers into one.
"""

from __future__ import annotations

import ipaddress

WIDER = 8


def network_of(address: str | None) -> str:
    """The /24 of an IPv4 address, the /64 of an IPv6 one; ``unknown`` for anything else."""
    parsed = _parsed(address)
    if parsed is None:
        return "unknown"
    return _network(parsed, 24 if isinstance(parsed, ipaddress.IPv4Address) else 64)


def networks_of(address: str | None) -> tuple[tuple[str, int], ...]:
    """Every network that the address is counted in, with how many times as much is let through there."""
    parsed = _parsed(address)
    nearest = (network_of(address), 1)
    return (
        (nearest, (_network(parsed, 48), WIDER)) if isinstance(parsed, ipaddress.IPv6Address) else (nearest,)
    )


def _parsed(address: str | None) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        parsed = ipaddress.ip_address(address or "")
    except ValueError:
        return None
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return mapped or parsed


def _network(address: ipaddress.IPv4Address | ipaddress.IPv6Address, length: int) -> str:
    return str(ipaddress.ip_network(f"{address}/{length}", strict=False))
