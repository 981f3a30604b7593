"""Metadata (RFC 8414, OpenID Connect Discovery) and keys, derived from what the server can do."""

from __future__ import annotations

import json
from typing import Any

from flask import Response, g

from app.oauth import cors
from app.oauth.server import GRANT_TYPES, RESPONSE_MODES, RESPONSE_TYPES, TOKEN_ENDPOINT_AUTH_METHODS
from app.operations import directory
from app.operations.directory import OrganizationView
from app.operations.protocol import signing_keys
from app.operations.registration import scopes
from app.rules.actor import Actor
from app.rules.protocol import dpop
from app.rules.protocol.authorization_request import PROMPTS
from app.rules.protocol.claims import SUPPORTED_CLAIMS
from app.rules.protocol.pkce import METHOD

_CACHED_SECONDS = 300
_ROOT = "root"


def metadata() -> Response:
    """The issuer's metadata; the same document at all three addresses."""
    return _public(document_of(_organization()))


def jwks() -> Response:
    """The public keys (RFC 7517)."""
    return _public({"keys": signing_keys.published_keys(_organization())})


def document_of(organization: OrganizationView) -> dict[str, Any]:
    """The metadata document of an organization."""
    issuer = organization.issuer
    oauth = organization.settings["oauth"]
    grant_types = [name for name in GRANT_TYPES if name in oauth["grant_types"]]
    methods = [
        name
        for name in TOKEN_ENDPOINT_AUTH_METHODS
        if name in oauth["clients"]["token_endpoint_auth_methods"]
    ]
    return {
        "issuer": issuer,
        "authorization_endpoint": f"{issuer}/oauth/authorize",
        "token_endpoint": f"{issuer}/oauth/token",
        "userinfo_endpoint": f"{issuer}/oauth/userinfo",
        "jwks_uri": f"{issuer}/oauth/jwks",
        "introspection_endpoint": f"{issuer}/oauth/introspect",
        "revocation_endpoint": f"{issuer}/oauth/revoke",
        "device_authorization_endpoint": f"{issuer}/oauth/device_authorization",
        "scopes_supported": [scope.name for scope in scopes.list_scopes(Actor.system(organization.id))],
        "response_types_supported": list(RESPONSE_TYPES),
        "response_modes_supported": list(RESPONSE_MODES),
        "grant_types_supported": grant_types,
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": list(signing_keys.ALGORITHMS),
        "token_endpoint_auth_methods_supported": methods,
        "introspection_endpoint_auth_methods_supported": [name for name in methods if name != "none"],
        "revocation_endpoint_auth_methods_supported": methods,
        "code_challenge_methods_supported": [METHOD],
        "dpop_signing_alg_values_supported": list(dpop.ALGORITHMS),
        "claims_supported": list(SUPPORTED_CLAIMS),
        "claim_types_supported": ["normal"],
        "prompt_values_supported": list(PROMPTS),
        "authorization_response_iss_parameter_supported": True,
        "claims_parameter_supported": False,
        "request_parameter_supported": False,
        "request_uri_parameter_supported": False,
        "require_request_uri_registration": False,
        "ui_locales_supported": ["en"],
    }


def _organization() -> OrganizationView:
    return directory.organization_by_slug(g.organization_slug or _ROOT, fresh=False)


def _public(document: dict[str, Any]) -> Response:
    response = Response(json.dumps(document), mimetype="application/json")
    response.headers["Cache-Control"] = f"public, max-age={_CACHED_SECONDS}"
    return cors.allow_everybody(response)
