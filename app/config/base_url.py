"""The public URL of the service, and the development switches that must not be set with it."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from .refusal import UnsafeConfiguration

_GOOD_BASE_URL = "it must look like https://id.example.com, without user, path or query."


def is_loopback_url(url: str) -> bool:
    """Return whether the URL's host is a loopback address."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_base_url(base_url: str) -> None:
    """Raise UnsafeConfiguration unless the URL is https, or http on the loopback interface."""
    try:
        parts = urlsplit(base_url)
        is_plain = parts.geturl() == f"{parts.scheme}://{parts.netloc}" and parts.port != 0
    except ValueError:
        raise UnsafeConfiguration(f"GATEHOUSE_BASE_URL is {base_url!r}; {_GOOD_BASE_URL}") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or not is_plain or "@" in parts.netloc:
        raise UnsafeConfiguration(f"GATEHOUSE_BASE_URL is {base_url!r}; {_GOOD_BASE_URL}")
    if parts.scheme == "http" and not is_loopback_url(base_url):
        raise UnsafeConfiguration(
            f"GATEHOUSE_BASE_URL is {base_url!r}. Plain http exposes every secret on the network. "
            f"Put a TLS proxy in front and set GATEHOUSE_BASE_URL=https://{parts.netloc}"
        )


def check_surroundings(env: Mapping[str, str], base_url: str) -> None:
    """Raise UnsafeConfiguration for development switches on a service that others can reach (BS-4)."""
    if is_loopback_url(base_url):
        return
    # Authlib treats any value as true, even "0".
    for variable, harmless in (
        ("AUTHLIB_INSECURE_TRANSPORT", {""}),
        ("FLASK_DEBUG", {"", "0", "false", "no"}),
    ):
        if env.get(variable, "").lower() not in harmless:
            raise UnsafeConfiguration(
                f"{variable} is set, which is for development only. Type: unset {variable}"
            )
