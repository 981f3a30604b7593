"""Metadata (RFC 8414, OpenID Connect Discovery), derived from what the server can do."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from app.oauth.server import GRANT_TYPES, RESPONSE_MODES, RESPONSE_TYPES, TOKEN_ENDPOINT_AUTH_METHODS
from app.operations.clients import scopes
from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.grants import signing_keys
from app.rules.actor import Actor
from app.rules.authorization import interaction
from app.rules.authorization.authorization_request import METHOD, PROMPTS
from app.rules.clients import client_assertions, dpop
from app.rules.clients.client_fields import SUBJECT_TYPES
from app.rules.clients.client_types import PRIVATE_KEY_JWT
from app.rules.languages.choice import LANGUAGES
from app.rules.tokens.claims import SUPPORTED_CLAIMS
from app.rules.users.sign_up import is_registration_open


def document_of(organization: OrganizationSnapshot) -> dict[str, Any]:
    """Return the metadata document of an organization."""
    issuer = organization.issuer
    oauth = organization.settings["oauth"]
    grant_types = [name for name in GRANT_TYPES if name in oauth["grant_types"]]
    methods = [
        name
        for name in TOKEN_ENDPOINT_AUTH_METHODS
        if name in oauth["clients"]["token_endpoint_auth_methods"]
    ]
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
        "device_authorization_endpoint": f"{issuer}/oauth/device_authorization",
        "scopes_supported": [scope.name for scope in scopes.list_scopes(Actor.system(organization.id))],
        "response_types_supported": list(RESPONSE_TYPES),
        "response_modes_supported": list(RESPONSE_MODES),
        "grant_types_supported": grant_types,
        "subject_types_supported": list(SUBJECT_TYPES),
        "id_token_signing_alg_values_supported": list(signing_keys.ALGORITHMS),
        "userinfo_signing_alg_values_supported": list(signing_keys.ALGORITHMS),
        "acr_values_supported": list(interaction.SUPPORTED),
        "display_values_supported": ["page"],
        "pushed_authorization_request_endpoint": f"{issuer}/oauth/par",
        "require_pushed_authorization_requests": oauth["require_par"],
        "token_endpoint_auth_methods_supported": methods,
        "introspection_endpoint_auth_methods_supported": [name for name in methods if name != "none"],
        "revocation_endpoint_auth_methods_supported": methods,
        **_assertions(methods),
        "introspection_signing_alg_values_supported": list(signing_keys.ALGORITHMS),
        "code_challenge_methods_supported": [METHOD],
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
    return document | _for_unknown_clients(organization)


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
