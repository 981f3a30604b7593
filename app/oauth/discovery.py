"""Public documents: metadata (RFC 8414, OpenID Connect Discovery, RFC 9728) and keys, derived from the server."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Collection
from typing import Any

from flask import Response, g, request
from msgspec import Struct

from app import config
from app.fast_path.cache import ValidatedCache, put
from app.oauth.protocol_request import ProtocolRequest
from app.oauth.protocol_response import ProtocolResponse
from app.oauth.server import GRANT_TYPES, RESPONSE_TYPES
from app.operations.clients import logos, scopes
from app.operations.clients.resources import get_catalog
from app.operations.directory import lookups
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.grants import signing_keys
from app.operations.organizations import branding
from app.operations.tokens import introspection, published_status_lists
from app.rules.authorization import interaction
from app.rules.authorization.authorization_request import METHOD, PROMPTS, RESPONSE_MODES
from app.rules.clients import client_assertions, dpop
from app.rules.clients.client_types import (
    AUTH_METHODS,
    DEVICE_CODE,
    NONE,
    PRIVATE_KEY_JWT,
    SIGNING_ALGORITHMS,
    SUBJECT_TYPES,
)
from app.rules.errors import OrganizationMoving, Unavailable
from app.rules.languages.translation import LANGUAGES
from app.rules.organizations.organizations import ROOT_SLUG
from app.rules.tokens import status_lists
from app.rules.tokens.claims import SUPPORTED_CLAIMS
from app.rules.users.profile import is_registration_open
from app.web.headers import program_headers

# Relying parties cache for this long: a key is published a day before it signs.
CACHED_SECONDS = 300
_NOT_MODIFIED = 304
_PUBLIC = (
    ("Cache-Control", f"public, max-age={CACHED_SECONDS}"),
    # Every browser app may read them (CR-2).
    ("Access-Control-Allow-Origin", "*"),
    ("Cross-Origin-Resource-Policy", "cross-origin"),
)


def document_of(organization: OrganizationSnapshot) -> dict[str, Any]:
    """Return the metadata document of an organization."""
    issuer = organization.issuer
    oauth = organization.settings["oauth"]
    grant_types = [name for name in GRANT_TYPES if name in oauth["grant_types"]]
    methods = [name for name in AUTH_METHODS if name in oauth["clients"]["token_endpoint_auth_methods"]]
    document = {
        "issuer": issuer,
        "authorization_endpoint": f"{issuer}/oauth/authorize",
        "token_endpoint": f"{issuer}/oauth/token",
        "userinfo_endpoint": f"{issuer}/oauth/userinfo",
        "jwks_uri": f"{issuer}/oauth/jwks",
        "introspection_endpoint": f"{issuer}/oauth/introspect",
        "revocation_endpoint": f"{issuer}/oauth/revoke",
        "end_session_endpoint": f"{issuer}/oauth/logout",
        "backchannel_logout_supported": True,
        "backchannel_logout_session_supported": True,
        "scopes_supported": list(scopes.list_public_scopes(organization.id)),
        "response_types_supported": list(RESPONSE_TYPES),
        "response_modes_supported": list(RESPONSE_MODES),
        "grant_types_supported": grant_types,
        "subject_types_supported": list(SUBJECT_TYPES),
        "id_token_signing_alg_values_supported": list(SIGNING_ALGORITHMS),
        "userinfo_signing_alg_values_supported": list(SIGNING_ALGORITHMS),
        "acr_values_supported": list(interaction.SUPPORTED),
        "display_values_supported": ["page"],
        "pushed_authorization_request_endpoint": f"{issuer}/oauth/par",
        "require_pushed_authorization_requests": oauth["require_par"],
        "token_endpoint_auth_methods_supported": methods,
        "introspection_endpoint_auth_methods_supported": [name for name in methods if name != NONE],
        "revocation_endpoint_auth_methods_supported": methods,
        **_assertions(methods),
        "introspection_signing_alg_values_supported": list(SIGNING_ALGORITHMS),
        "code_challenge_methods_supported": [METHOD],
        # Not in a standard: which clients must use PKCE, as in the settings.
        "pkce_policy": oauth["pkce"],
        "dpop_signing_alg_values_supported": list(dpop.ALGORITHMS),
        "claims_supported": list(SUPPORTED_CLAIMS),
        "claim_types_supported": ["normal"],
        "prompt_values_supported": _prompts(organization),
        "authorization_response_iss_parameter_supported": True,
        "claims_parameter_supported": True,
        "request_parameter_supported": True,
        "request_object_signing_alg_values_supported": list(client_assertions.ALGORITHMS),
        # Only those of pushed requests are accepted, which this field does not cover (RFC 9126 section 5).
        "request_uri_parameter_supported": False,
        "require_request_uri_registration": False,
        "ui_locales_supported": list(LANGUAGES),
    }
    if DEVICE_CODE in grant_types:
        document["device_authorization_endpoint"] = f"{issuer}/oauth/device_authorization"
    if oauth["access_token"]["allow_unstored"] or get_catalog(organization.id).has_status_list:
        document["status_list_aggregation_endpoint"] = f"{issuer}/oauth/status-lists"
    document |= _for_unknown_clients(organization)
    # Lists without elements must be left out (RFC 8414 section 3.2, OpenID Connect Discovery section 4.2).
    return {name: value for name, value in document.items() if value != []}


def _prompts(organization: OrganizationSnapshot) -> list[str]:
    """Return the supported prompts: ``create`` only where users can create accounts themselves."""
    can_register = is_registration_open(organization.settings)
    return [prompt for prompt in PROMPTS if prompt != "create" or can_register]


def _assertions(methods: Collection[str]) -> dict[str, list[str]]:
    """Return the algorithms for client assertions at each endpoint (RFC 8414 section 2)."""
    if PRIVATE_KEY_JWT not in methods:
        return {}
    return {
        f"{endpoint}_endpoint_auth_signing_alg_values_supported": list(client_assertions.ALGORITHMS)
        for endpoint in ("token", "introspection", "revocation")
    }


def _for_unknown_clients(organization: OrganizationSnapshot) -> dict[str, Any]:
    """Return how unknown clients may register, where the organization allows it."""
    rules = organization.settings["oauth"]["dynamic_registration"]
    metadata: dict[str, Any] = {}
    if rules["mode"] != "off":
        metadata["registration_endpoint"] = f"{organization.issuer}/oauth/register"
    if rules["client_id_metadata_documents"]:
        metadata["client_id_metadata_document_supported"] = True
    return metadata


class _Document(Struct, frozen=True):
    """The body, and the complete headers of a response with it and of one without (304)."""

    body: bytes
    etag: str
    headers: tuple[tuple[str, str], ...]
    headers_without_body: tuple[tuple[str, str], ...]


_cache: ValidatedCache[_Document] = ValidatedCache()
# How long a document is served while the database is away: a key that an emergency removed is not published for longer.
MAX_AGE_SECONDS = 900
# By slug, because the database maps it to an organization; a slug is never given to another one.
_last_served: dict[tuple[str, str, str, str], tuple[float, _Document]] = {}
_MAX_LAST_SERVED = 5_000


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
    """Respond with the document, or while the database is away with the one that was served last.

    That one is at most ``MAX_AGE_SECONDS`` old, as its ``Age`` says (RFC 9111 section 5.1).
    """
    slug, settings = request.organization_slug or ROOT_SLUG, config.current()
    key = (settings.database_url, settings.base_url, slug, name)
    try:
        document, age = _load(slug, name, make), None
        put(_last_served, key, (time.monotonic(), document), max_entries=_MAX_LAST_SERVED)
    except OrganizationMoving:
        # Another cell may publish other keys by now.
        raise
    except Unavailable:
        last = _last_served.get(key)
        if last is None or time.monotonic() - last[0] > MAX_AGE_SECONDS:
            raise
        document, age = last[1], ("Age", str(int(time.monotonic() - last[0])))
    more = () if age is None else (age,)
    if _has(request, document.etag):
        return ProtocolResponse(_NOT_MODIFIED, b"", [*document.headers_without_body, *more])
    return ProtocolResponse(200, document.body, [*document.headers, *more])


def _load(slug: str, name: str, make: Callable[[OrganizationSnapshot], dict[str, Any]]) -> _Document:
    settings = config.current()
    organization = lookups.get_organization_by_slug(slug, fresh=False)
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
    return document


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


def status_list(list_id: str) -> Response:
    """Return a status list of the issuer (draft-ietf-oauth-status-list-17 section 8).

    Raises NotFound, and HistoryUnavailable for the list of another time.
    """
    if "time" in request.args:
        raise status_lists.HistoryUnavailable
    signed = published_status_lists.get_signed_list(_issuer_of_path(), list_id)
    return _public(Response(signed, mimetype=status_lists.MEDIA_TYPE), status_lists.CACHED_SECONDS)


def list_status_lists() -> Response:
    """Return the URLs of the issuer's status lists (section 9)."""
    document = {"status_lists": published_status_lists.list_uris(_issuer_of_path())}
    return _public(Response(json.dumps(document), mimetype="application/json"), status_lists.CACHED_SECONDS)


def _issuer_of_path() -> OrganizationSnapshot:
    return lookups.get_organization_by_slug(g.get("organization_slug") or ROOT_SLUG, fresh=False)


def _public(response: Response, seconds: int) -> Response:
    response.headers.update({**dict(_PUBLIC), "Cache-Control": f"public, max-age={seconds}"})
    return response


def show(client_id: str, digest: str) -> Response:
    """Return the logo of a client. Raises NotFound."""
    return _picture(logos.get_logo(client_id, digest))


def show_of_organization(organization_id: str, digest: str) -> Response:
    """Return the logo of an organization. Raises NotFound."""
    return _picture(branding.get_logo_picture(organization_id, digest))


def _picture(content: bytes) -> Response:
    answer = Response(content, mimetype="image/png")
    answer.headers["Cache-Control"] = "public, max-age=31536000, immutable"
    return answer
