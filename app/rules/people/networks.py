"""Networks: the part of an address that one attacker can vary at no cost is left out when attempts are counted."""

from __future__ import annotations

import ipaddress


def network_of(address: str | None) -> str:
    """The /24 of an IPv4 address, the /64 of an IPv6 one (LK-1); ``unknown`` for anything else."""
    try:
        parsed = ipaddress.ip_address(address or "")
    except ValueError:
        return "unknown"
    if isinstance(parsed, ipaddress.IPv6Address):
        mapped = parsed.ipv4_mapped
        if mapped is None:
            return str(ipaddress.ip_network((int(parsed), 64), strict=False))
        parsed = mapped
    return str(ipaddress.ip_network((int(parsed), 24), strict=False))
