"""URLs that the service may request, and delays between attempts.

Third parties register URLs. They must not reach into the network of this server (SF-2).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from datetime import timedelta
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from ipaddress import ip_address as parse_ip_address

from msgspec import Struct

from app.rules.errors import DomainError

MIN_RETRY_SECONDS = 10
MAX_RETRY_SECONDS = 3600
DELIVERY_TIMEOUT = timedelta(hours=24)
MAX_URL_LENGTH = 2048
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_URL = re.compile(
    rf"https://(?P<host>{_LABEL}(?:\.{_LABEL})*|\[[0-9A-Fa-f:.]{{2,45}}\])(?::(?P<port>[0-9]{{1,5}}))?"
    r"(?P<path>[/?][\x21\x24-\x3b\x3d\x3f-\x5b\x5d\x5f\x61-\x7a\x7e%]*)?"
)
# WHATWG URL: a host whose last label looks like a number is an IPv4 address in one of many spellings.
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")
# Everything else is not global unicast: loopback, IPv4-mapped, NAT64, unique local, link local, multicast.
_GLOBAL_V6 = IPv6Network("2000::/3")
_NOT_GLOBAL_V6 = tuple(
    IPv6Network(block)
    for block in (
        "2001::/23",  # protocol assignments, including Teredo
        "2001:db8::/32",
        "2002::/16",  # 6to4 embeds any IPv4 address
        "3fff::/20",
    )
)


def retry_delay(attempts: int, chance: float) -> timedelta:
    """Return how long to wait after this many failed attempts. The delay doubles up to an hour.

    ``chance`` from 0 to 1 shifts it by up to a quarter, so that messages that failed together are not retried together.
    """
    # After nine doublings the maximum is reached. Without the bound, 2 ** 10_000 would be computed.
    seconds = min(MAX_RETRY_SECONDS, MIN_RETRY_SECONDS * 2 ** min(max(attempts, 1) - 1, 9))
    return timedelta(seconds=seconds * (0.75 + chance / 2))


# The IANA special-purpose address registry, and addresses that are never assigned to a host.
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


MIN_UNPRIVILEGED_PORT = 1024
# The bad ports of the Fetch standard that are not privileged. Below 1024 are mail, directories and other services that
# speak TLS too and might take a request for their own protocol.
_BLOCKED_PORTS = frozenset(
    (
        1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697,
        10080,
    )
)  # fmt: skip


class OutgoingRequestBlocked(DomainError):
    """The service does not call this URL."""

    code = "address_not_allowed"


class Target(Struct, frozen=True):
    """Destination of a request: ``host`` in lower case without brackets, ``path`` with the query."""

    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """Host and port for the Host header (RFC 9110 section 7.2)."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == 443 else f"{host}:{self.port}"


def parse_target(url: str) -> Target:
    """Parse an https URL in its plain form: no user, no fragment, no disguised IP address.

    Raises OutgoingRequestBlocked for anything else.
    """
    parts = _URL.fullmatch(url) if len(url) <= MAX_URL_LENGTH else None
    if parts is None:
        raise OutgoingRequestBlocked("This must be an https URL without user name and fragment.")
    host = parts["host"].lower().strip("[]")
    last = host.rpartition(".")[2]
    if (_NUMBER.fullmatch(last) or ":" in host) and not is_ip_address(host):
        raise OutgoingRequestBlocked("The URL contains an IP address in an unusual notation.")
    port = int(parts["port"] or 443)
    if not 1 <= port <= 65535 or len(host) > 253:
        raise OutgoingRequestBlocked("The URL has an invalid host or port.")
    path = parts["path"] or "/"
    return Target(host, port, path if path.startswith("/") else f"/{path}")


def is_global_unicast(ip_address: str) -> bool:
    """Return whether the text is the IP address of a host on the public internet."""
    try:
        parsed = parse_ip_address(ip_address)
    except ValueError:
        return False
    if isinstance(parsed, IPv4Address):
        return not any(parsed in block for block in _NOT_GLOBAL_V4)
    if parsed.scope_id is not None or parsed not in _GLOBAL_V6:
        return False
    return not any(parsed in block for block in _NOT_GLOBAL_V6)


def require_web_port(target: Target, allowed_hosts: Collection[str]) -> None:
    """Raise OutgoingRequestBlocked unless web servers use the port, or the operator allowed the host.

    These are 443 and the unprivileged ports that browsers do not block. ``allowed_hosts`` are ``host`` or
    ``host:port``.
    """
    is_web_port = target.port == 443 or (
        target.port >= MIN_UNPRIVILEGED_PORT and target.port not in _BLOCKED_PORTS
    )
    if not is_web_port and not _is_allowed(target, allowed_hosts):
        raise OutgoingRequestBlocked("Use port 443, or a port from 1024 that browsers don't block.")


def require_public_addresses(
    target: Target, ip_addresses: Sequence[str], allowed_hosts: Collection[str]
) -> None:
    """Raise OutgoingRequestBlocked unless all addresses are public or the operator allowed the host.

    ``allowed_hosts`` are ``host`` or ``host:port``. One private address among public ones is rejected too, because the
    owner of the name may choose which one is used.
    """
    if _is_allowed(target, allowed_hosts):
        return
    if not ip_addresses or not all(is_global_unicast(each) for each in ip_addresses):
        raise OutgoingRequestBlocked(
            "The URL must point to the public internet. The operator of this instance can allow other hosts."
        )


def _is_allowed(target: Target, allowed_hosts: Collection[str]) -> bool:
    host = f"[{target.host}]" if ":" in target.host else target.host
    return host in allowed_hosts or f"{host}:{target.port}" in allowed_hosts


def is_ip_address(host: str) -> bool:
    """Return whether the host of a target is an IP address in its usual notation."""
    try:
        (IPv6Address if ":" in host else IPv4Address)(host)
    except ValueError:
        return False
    return True
