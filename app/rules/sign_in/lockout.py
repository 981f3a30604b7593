"""Lockout: how long to wait after failed attempts.

The wait doubles up to a maximum, and no lockout is permanent.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

IPV6_SITE_FACTOR = 8
"""How many times the limit of a /64 applies to the /48 that contains it."""


@dataclass(frozen=True, slots=True)
class Lockout:
    """The setting ``authentication.lockout`` of an organization."""

    max_failures: int
    window: timedelta
    delay: timedelta
    max_delay: timedelta

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Lockout:
        """Return the lockout of an effective settings document."""
        values = settings["authentication"]["lockout"]
        return cls(
            values["max_failures"],
            timedelta(seconds=values["window_seconds"]),
            timedelta(seconds=values["delay_seconds"]),
            timedelta(seconds=values["max_delay_seconds"]),
        )

    def with_max_failures(self, max_failures: int) -> Lockout:
        """Return a copy in which waits begin after the given number of failures."""
        return replace(self, max_failures=max_failures)

    def seconds_to_wait(self, failures: int, last_failure: datetime | None, now: datetime) -> int:
        """Return the whole seconds until the next attempt, 0 if it is allowed now.

        ``failures`` counts those within the window, the last of them at ``last_failure``.
        """
        if failures < self.max_failures or last_failure is None:
            return 0
        doublings = min(failures - self.max_failures, 20)
        wait = last_failure + min(self.delay * 2**doublings, max(self.delay, self.max_delay)) - now
        return max(0, -int(-wait.total_seconds() // 1))

    def attempts_left(self, failures: int) -> int:
        """Return how many further attempts are possible without a wait."""
        return max(0, self.max_failures - failures)


def network_of(ip_address: str | None) -> str:
    """Return the /24 of an IPv4 address or the /64 of an IPv6 address, ``unknown`` for anything else."""
    parsed = _parse_ip(ip_address)
    if parsed is None:
        return "unknown"
    return _network(parsed, 24 if isinstance(parsed, ipaddress.IPv4Address) else 64)


def networks_of(ip_address: str | None) -> tuple[tuple[str, int], ...]:
    """Return the networks that the IP address counts towards, each with the factor for its limit."""
    parsed = _parse_ip(ip_address)
    nearest = (network_of(ip_address), 1)
    return (
        (nearest, (_network(parsed, 48), IPV6_SITE_FACTOR))
        if isinstance(parsed, ipaddress.IPv6Address)
        else (nearest,)
    )


def _parse_ip(ip_address: str | None) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        parsed = ipaddress.ip_address(ip_address or "")
    except ValueError:
        return None
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return mapped or parsed


def _network(ip_address: ipaddress.IPv4Address | ipaddress.IPv6Address, length: int) -> str:
    return str(ipaddress.ip_network(f"{ip_address}/{length}", strict=False))
