"""Protected-resource metadata (RFC 9728): how a client that knows a resource's address alone finds its issuer."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

_CREDENTIALS = re.compile(r"(bearer|dpop) +([A-Za-z0-9._~+/-]+=*) *", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PresentedToken:
    """The token, whether by the scheme DPoP, and then the proof beside it and the request that it is a proof of."""

    token: str
    by_dpop: bool = False
    proof: str | None = None
    method: str = "GET"
    url: str = ""


def read_credentials(header: str) -> tuple[bool, str] | None:
    """(whether the scheme is DPoP, the token) of an Authorization header, or None when it holds neither kind.

    The scheme counts in any case (RFC 9110 section 11.1).
    """
    match = _CREDENTIALS.fullmatch(header)
    return None if match is None else (match[1].lower() == "dpop", match[2])


def is_by_dpop(header: str | None) -> bool:
    """Whether the Authorization header names the scheme DPoP, well-formed or not."""
    return (header or "").lower().startswith("dpop ")


WELL_KNOWN = "/.well-known/oauth-protected-resource"


def metadata_of(
    resource: str, *, issuer: str, scopes: Iterable[str], name: str | None = None
) -> dict[str, Any]:
    """The document that the resource serves at ``metadata_address`` (RFC 9728 section 2)."""
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


def metadata_address(resource: str) -> str | None:
    """Where the document stands: between host and path (RFC 9728 section 3.1). None for what is no https address.

    ``http`` is let through for the development of a resource on one's own machine.
    """
    parts = urlsplit(resource)
    if parts.scheme not in {"https", "http"} or not parts.netloc:
        return None
    path = "" if parts.path == "/" else parts.path
    return urlunsplit((parts.scheme, parts.netloc, WELL_KNOWN + path, parts.query, ""))


def challenge_of(address: str) -> str:
    """The WWW-Authenticate header of the resource's 401, which names the document (RFC 9728 section 5.1)."""
    return f'Bearer resource_metadata="{address}"'
