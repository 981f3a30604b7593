"""Public documents, an issuer's metadata and its keys: kept as bytes until something of the organization changes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from app import config
from app.fast_path.cache import ValidatedCache
from app.oauth.answer import Answer
from app.oauth.call import Call
from app.oauth.discovery import document_of
from app.operations.directory import lookups
from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.grants import signing_keys
from app.operations.tokens import introspection
from app.web.headers import program_headers

# What relying parties keep for as long: a key is published a day before it signs.
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
    """The bytes, and the complete headers of an answer with them and of one without."""

    body: bytes
    etag: str
    headers: tuple[tuple[str, str], ...]
    headers_alone: tuple[tuple[str, str], ...]


_kept: ValidatedCache[_Document] = ValidatedCache()


def metadata(call: Call) -> Answer:
    """The issuer's metadata (RFC 8414, OpenID Connect Discovery); the same bytes at all its addresses."""
    return _answer(call, "metadata", document_of)


def jwks(call: Call) -> Answer:
    """The public keys of the issuer (RFC 7517)."""
    return _answer(
        call, "jwks", lambda organization: {"keys": signing_keys.list_published_keys(organization)}
    )


def protected_resource(call: Call) -> Answer:
    """The metadata of the management API as a resource (RFC 9728)."""
    return _answer(call, "protected resource", lambda _: introspection.management_metadata())


def _answer(call: Call, name: str, make: Callable[[OrganizationSnapshot], dict[str, Any]]) -> Answer:
    settings = config.current()
    organization = lookups.get_organization_by_slug(call.organization_slug or _ROOT, fresh=False)
    document = _kept.get(organization.id, settings.base_url, name)
    if document is None:
        # The organization is looked at again: what changed since would make a document that nobody finds out as old.
        document = _kept.load(
            organization.id,
            settings.base_url,
            name,
            load=lambda: _serialized(
                make(lookups.get_organization_by_id(organization.id, fresh=False)), settings.is_https
            ),
        )
    if document is None:
        raise RuntimeError("a document was made and is not there")
    if _has(call, document.etag):
        return Answer(_NOT_MODIFIED, b"", list(document.headers_alone))
    return Answer(200, document.body, list(document.headers))


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


def _has(call: Call, etag: str) -> bool:
    """Whether the caller holds these very bytes (RFC 9110 section 13.1.2)."""
    held = call.environ.get("HTTP_IF_NONE_MATCH")
    if not held:
        return False
    tags = [tag.strip().removeprefix("W/") for tag in held.split(",")]
    return etag in tags or "*" in tags
