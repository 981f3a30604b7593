"""Protected-resource metadata (RFC 9728): how a client that knows a resource's address alone finds its issuer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit, urlunsplit

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
