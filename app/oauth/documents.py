"""Public documents, an issuer's metadata and keys, cached as bytes until the organization changes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from app import config
from app.fast_path.cache import ValidatedCache
from app.oauth.discovery import document_of
from app.oauth.protocol_request import ProtocolRequest
from app.oauth.protocol_response import ProtocolResponse
from app.operations.directory import lookups
from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.grants import signing_keys
from app.operations.tokens import introspection
from app.web.headers import program_headers

# Relying parties cache for this long: a key is published a day before it signs.
CACHED_SECONDS = 300
_ROOT = "root"
_NOT_MODIFIED = 304
_PUBLIC = (
    ("Cache-Control", f"public, max-age={CACHED_SECONDS}"),
    # Every browser app may read them (CR-2).
    ("Access-Control-Allow-Origin", "*"),
    ("Cross-Origin-Resource-Policy", "cross-origin"),
)


@dataclass(frozen=True, slots=True)
class _Document:
    """The body, and the complete headers of a response with it and of one without (304)."""

    body: bytes
    etag: str
    headers: tuple[tuple[str, str], ...]
    headers_without_body: tuple[tuple[str, str], ...]


_cache: ValidatedCache[_Document] = ValidatedCache()


def metadata(request: ProtocolRequest) -> ProtocolResponse:
    """Return the issuer's metadata (RFC 8414, OpenID Connect Discovery); the same bytes at all of its URLs."""
    return _respond(request, "metadata", document_of)


def jwks(request: ProtocolRequest) -> ProtocolResponse:
    """Return the public keys of the issuer (RFC 7517)."""
    return _respond(
        request, "jwks", lambda organization: {"keys": signing_keys.list_published_keys(organization)}
    )


def protected_resource(request: ProtocolRequest) -> ProtocolResponse:
    """Return the metadata of the management API as a resource (RFC 9728)."""
    return _respond(request, "protected resource", lambda _: introspection.management_metadata())


def _respond(
    request: ProtocolRequest, name: str, make: Callable[[OrganizationSnapshot], dict[str, Any]]
) -> ProtocolResponse:
    settings = config.current()
    organization = lookups.get_organization_by_slug(request.organization_slug or _ROOT, fresh=False)
    document = _cache.get(organization.id, settings.base_url, name)
    if document is None:
        # Read the organization again: a document made from an outdated one would never be recognized as outdated.
        document = _cache.load(
            organization.id,
            settings.base_url,
            name,
            load=lambda: _serialized(
                make(lookups.get_organization_by_id(organization.id, fresh=False)), settings.is_https
            ),
        )
    if document is None:
        raise RuntimeError("a document that was just cached is missing")
    if _has(request, document.etag):
        return ProtocolResponse(_NOT_MODIFIED, b"", list(document.headers_without_body))
    return ProtocolResponse(200, document.body, list(document.headers))


def _serialized(document: dict[str, Any], is_https: bool) -> _Document:
    body = json.dumps(document).encode()
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    own = {name for name, _ in _PUBLIC}
    alone = (
        ("ETag", etag),
        *_PUBLIC,
        *(header for header in program_headers(is_https) if header[0] not in own),
    )
    whole = (("Content-Type", "application/json"), ("Content-Length", str(len(body))), *alone)
    return _Document(body, etag, whole, alone)


def _has(request: ProtocolRequest, etag: str) -> bool:
    """Return whether the caller has the same version (RFC 9110 section 13.1.2)."""
    held = request.environ.get("HTTP_IF_NONE_MATCH")
    if not held:
        return False
    tags = [tag.strip().removeprefix("W/") for tag in held.split(",")]
    return etag in tags or "*" in tags
