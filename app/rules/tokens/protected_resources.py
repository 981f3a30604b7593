"""Presented access tokens (RFC 6750, RFC 9449), and protected-resource metadata (RFC 9728)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

_CREDENTIALS = re.compile(r"(bearer|dpop) +([A-Za-z0-9._~+/-]+=*) *", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PresentedToken:
    """An access token from a request; with the scheme DPoP, also its proof and the request's method and URL."""

    token: str
    by_dpop: bool = False
    proof: str | None = None
    method: str = "GET"
    url: str = ""


def read_credentials(header: str) -> tuple[bool, str] | None:
    """Return (whether the scheme is DPoP, the token) of an Authorization header; None for other schemes.

    Schemes are case-insensitive (RFC 9110 section 11.1).
    """
    match = _CREDENTIALS.fullmatch(header)
    return None if match is None else (match[1].lower() == "dpop", match[2])


def is_by_dpop(header: str | None) -> bool:
    """Return whether the Authorization header has the scheme DPoP, well-formed or not."""
    return (header or "").lower().startswith("dpop ")


WELL_KNOWN = "/.well-known/oauth-protected-resource"


def build_metadata(
    resource: str, *, issuer: str, scopes: Iterable[str], name: str | None = None
) -> dict[str, Any]:
    """Return the document that the resource serves at ``metadata_address`` (RFC 9728 section 2)."""
    document: dict[str, Any] = {
        "resource": resource,
        "authorization_servers": [issuer],
        "scopes_supported": list(scopes),
        "bearer_methods_supported": ["header"],
    }
    if not document["scopes_supported"]:
        del document["scopes_supported"]
    if name is not None:
        document["resource_name"] = name
    return document


def metadata_url(resource: str) -> str | None:
    """Return the URL of the document (RFC 9728 section 3.1), or None if the resource is not a web URL.

    ``http`` is accepted for local development.
    """
    parts = urlsplit(resource)
    if parts.scheme not in {"https", "http"} or not parts.netloc:
        return None
    path = "" if parts.path == "/" else parts.path
    return urlunsplit((parts.scheme, parts.netloc, WELL_KNOWN + path, parts.query, ""))


def build_challenge(url: str) -> str:
    """Return the WWW-Authenticate header of the resource's 401 responses (RFC 9728 section 5.1)."""
    return f'Bearer resource_metadata="{url}"'
