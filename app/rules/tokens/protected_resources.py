"""Protected-resource metadata (RFC 9728)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit, urlunsplit

WELL_KNOWN = "/.well-known/oauth-protected-resource"


def build_metadata(
    resource: str, *, issuer: str, scopes: Iterable[str], name: str | None = None
) -> dict[str, Any]:
    """Return the document that the resource serves at ``metadata_url`` (RFC 9728 section 2)."""
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
