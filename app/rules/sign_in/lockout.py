"""Lockout: how long somebody waits after failed attempts. The wait doubles and ends; nobody is locked out for ever."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

IPV6_SITE_FACTOR = 8


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
        (nearest, (_network(parsed, 48), IPV6_SITE_FACTOR))
        if isinstance(parsed, ipaddress.IPv6Address)
        else (nearest,)
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


@dataclass(frozen=True, slots=True)
class Lockout:
    """``authentication.lockout`` of an organization's settings."""

    max_failures: int
    window: timedelta
    delay: timedelta
    max_delay: timedelta

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Lockout:
        """The lockout of an effective settings document."""
        values = settings["authentication"]["lockout"]
        return cls(
            values["max_failures"],
            timedelta(seconds=values["window_seconds"]),
            timedelta(seconds=values["delay_seconds"]),
            timedelta(seconds=values["max_delay_seconds"]),
        )

    def from_failure(self, max_failures: int) -> Lockout:
        """The same, only that the waits begin after so many failures."""
        return replace(self, max_failures=max_failures)

    def seconds_to_wait(self, failures: int, last_failure: datetime | None, now: datetime) -> int:
        """Whole seconds until the next attempt may be made; 0 when it may be made now.

        ``failures`` are those within the window, the last of them at ``last_failure``.
        """
        if failures < self.max_failures or last_failure is None:
            return 0
        doublings = min(failures - self.max_failures, 20)
        wait = last_failure + min(self.delay * 2**doublings, max(self.delay, self.max_delay)) - now
        return max(0, -int(-wait.total_seconds() // 1))

    def attempts_left(self, failures: int) -> int:
        """How many further attempts are answered without a wait."""
        return max(0, self.max_failures - failures)
