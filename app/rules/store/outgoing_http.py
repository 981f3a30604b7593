"""Which addresses the service may call: what a stranger registered must not reach into our own network (SF-2)."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from app.rules.errors import DomainError

MIN_RETRY_SECONDS = 10
MAX_RETRY_SECONDS = 3600
DELIVERY_TIMEOUT = timedelta(hours=24)


def retry_delay(attempts: int, chance: float) -> timedelta:
    """How long to wait after so many failed attempts: it doubles up to an hour.

    ``chance`` from 0 to 1 moves it by a quarter either way, so that many that failed together do not come together.
    """
    # Beyond the ninth doubling nothing grows any more, and 2 ** 10_000 would be a number of its own.
    seconds = min(MAX_RETRY_SECONDS, MIN_RETRY_SECONDS * 2 ** min(max(attempts, 1) - 1, 9))
    return timedelta(seconds=seconds * (0.75 + chance / 2))


MAX_URL_LENGTH = 2048

_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_URL = re.compile(
    rf"https://(?P<host>{_LABEL}(?:\.{_LABEL})*|\[[0-9A-Fa-f:.]{{2,45}}\])(?::(?P<port>[0-9]{{1,5}}))?"
    r"(?P<path>[/?][\x21\x24-\x3b\x3d\x3f-\x5b\x5d\x5f\x61-\x7a\x7e%]*)?"
)
# WHATWG URL: a host whose last label looks like a number is an IPv4 address in one of many spellings.
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")

# IANA's registry of special-purpose addresses, and what was never given to a host.
_NOT_GLOBAL_V4 = tuple(
    IPv4Network(block)
    for block in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)
# Everything beyond it is no global unicast: loopback, IPv4-mapped, NAT64, unique local, link local, multicast.
_GLOBAL_V6 = IPv6Network("2000::/3")
_NOT_GLOBAL_V6 = tuple(
    IPv6Network(block)
    for block in (
        "2001::/23",  # protocols, Teredo among them
        "2001:db8::/32",
        "2002::/16",  # 6to4 carries any IPv4 address within
        "3fff::/20",
    )
)


class OutgoingRequestBlocked(DomainError):
    """The address is none that the service calls."""

    code = "address_not_allowed"


@dataclass(frozen=True, slots=True)
class Target:
    """Where a request goes: ``host`` in small letters without brackets, ``path`` with the query."""

    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """Host and port as the Host header has them (RFC 9110 section 7.2)."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == 443 else f"{host}:{self.port}"


def parse_target(url: str) -> Target:
    """The parts of an https URL in its plainest spelling: no user, no fragment, no address in disguise.

    Raises OutgoingRefused for anything else.
    """
    parts = _URL.fullmatch(url) if len(url) <= MAX_URL_LENGTH else None
    if parts is None:
        raise OutgoingRequestBlocked("The address must be a plain https URL without user and fragment.")
    host = parts["host"].lower().strip("[]")
    last = host.rpartition(".")[2]
    if (_NUMBER.fullmatch(last) or ":" in host) and not _is_plain_address(host):
        raise OutgoingRequestBlocked("The address names its host by a number in an unusual form.")
    port = int(parts["port"] or 443)
    if not 1 <= port <= 65535 or len(host) > 253:
        raise OutgoingRequestBlocked("The address names no such host or port.")
    path = parts["path"] or "/"
    return Target(host, port, path if path.startswith("/") else f"/{path}")


def is_global_unicast(address: str) -> bool:
    """Whether an IP address is one of the public internet's hosts, whatever it may carry within."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, IPv4Address):
        return not any(parsed in block for block in _NOT_GLOBAL_V4)
    if parsed.scope_id is not None or parsed not in _GLOBAL_V6:
        return False
    return not any(parsed in block for block in _NOT_GLOBAL_V6)


def require_public_addresses(
    target: Target, addresses: Sequence[str], allowed_hosts: Collection[str]
) -> None:
    """Raises OutgoingRefused unless every address the host has is public, or the operator allowed the host.

    ``allowed_hosts`` are ``host`` or ``host:port``. One private address among public ones is refused too: the
    name belongs to somebody who may choose which one counts.
    """
    host = f"[{target.host}]" if ":" in target.host else target.host
    if host in allowed_hosts or f"{host}:{target.port}" in allowed_hosts:
        return
    if not addresses or not all(is_global_unicast(address) for address in addresses):
        raise OutgoingRequestBlocked("The address is not one of the public internet.")


def _is_plain_address(host: str) -> bool:
    try:
        (IPv6Address if ":" in host else IPv4Address)(host)
    except ValueError:
        return False
    return True
