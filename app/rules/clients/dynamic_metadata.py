"""Dynamic client registration: client metadata of RFC 7591, converted to the fields of a client and back.

Unlike the management API, which rejects unknown fields, this accepts metadata that was written for many servers:
unknown names are ignored (RFC 7591 section 2), unavailable values are left out or rejected, and the response says what
the client was registered with. A caller can't choose a ``client_id``, trust, audiences or a management scope.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from app.rules.clients.client_metadata import ClientMetadata
from app.rules.clients.client_types import (
    AUTHORIZATION_CODE,
    BASIC,
    CLIENT_TYPES,
    DEVICE,
    DEVICE_CODE,
    NATIVE,
    NONE,
    POST,
    PRIVATE_KEY_JWT,
    REFRESH_TOKEN,
    SECRET_METHODS,
    SPA,
    WEB,
)
from app.rules.clients.redirect_uris import is_loopback, is_private_scheme
from app.rules.directory.permissions import ALL_PERMISSIONS
from app.rules.errors import InvalidInput
from app.rules.fields import ValidationErrors
from app.rules.mail.email_addresses import is_email
from app.rules.scopes import GROUPS, OPENID_SCOPES, ROLES, format_scope, parse_scope, restrict_scopes

# In each of these grants a user consents. With client_credentials, anybody could issue tokens to themselves.
GRANTS = (AUTHORIZATION_CODE, REFRESH_TOKEN, DEVICE_CODE)
UNNAMED = "Unnamed app"
# In bytes. Each worker caches thousands of clients, and anybody can choose the size of their metadata.
MAX_BYTES = 16 * 1024

# Copied unchanged: they are validated like the fields of every client.
_AS_SENT = (
    "redirect_uris", "post_logout_redirect_uris", "jwks_uri", "client_uri", "logo_uri", "policy_uri", "tos_uri",
    "backchannel_logout_uri", "backchannel_logout_session_required", "initiate_login_uri", "subject_type",
    "sector_identifier_uri", "default_max_age", "require_auth_time", "default_acr_values",
    "id_token_signed_response_alg", "userinfo_signed_response_alg", "introspection_signed_response_alg",
    "request_object_signing_alg", "require_signed_request_object", "token_endpoint_auth_signing_alg",
    "dpop_bound_access_tokens", "require_pushed_authorization_requests", "software_id", "software_version",
)  # fmt: skip
# In no standard. An update that omits it does not change it.
_KEPT = ("id_token_claims",)
_READ = (
    "contacts",
    "jwks",
    "scopes",
    "grant_types",
    "response_types",
    "token_endpoint_auth_method",
    "any_secret_method",
)
FIELDS = ("name", "type", *_READ, *_AS_SENT)
# All fields that are read from a client's metadata, by their names in RFC 7591.
NAMES = (
    "client_name", "application_type", "scope", "contacts", "jwks", "grant_types", "response_types",
    "token_endpoint_auth_method", *_KEPT, *_AS_SENT,
)  # fmt: skip

_RFC7591_NAMES = {"name": "client_name", "scopes": "scope", "type": "application_type"}


class Offer(Struct, frozen=True):
    """The values that self-registered clients of an organization may have (DC-2).

    ``default_scopes`` are those of a client that requests none.
    """

    scopes: tuple[str, ...]
    default_scopes: tuple[str, ...]
    grant_types: tuple[str, ...]
    auth_methods: tuple[str, ...]

    @classmethod
    def of(
        cls, settings: Mapping[str, Any], registry: tuple[str, ...], *, apis_by_default: bool = False
    ) -> Offer:
        """Return the offer of an organization with these effective settings and these scopes in its registry.

        With ``apis_by_default``, a client that requests no scopes also gets those of the organization's APIs.
        """
        scopes = tuple(name for name in registry if name not in ALL_PERMISSIONS)
        oauth = settings["oauth"]
        return cls(
            scopes=scopes,
            default_scopes=tuple(name for name in scopes if name not in (GROUPS, ROLES))
            if apis_by_default
            else restrict_scopes(OPENID_SCOPES, scopes),
            grant_types=tuple(name for name in GRANTS if name in oauth["grant_types"]),
            auth_methods=tuple(oauth["clients"]["token_endpoint_auth_methods"]),
        )


def as_fields(sent: Mapping[str, Any], offer: Offer, before: ClientMetadata | None = None) -> dict[str, Any]:
    """Return the fields for ``register_client`` from RFC 7591 metadata; ``null`` means that a field is omitted.

    ``before`` is the client that an update replaces. Raises InvalidInput if a required value is unavailable. Values
    with a wrong JSON type are rejected later, by the validation of every client's fields.
    """
    given = {name: value for name, value in sent.items() if value is not None}
    errors = ValidationErrors()
    fields = {name: given[name] for name in (*_AS_SENT, *_KEPT) if name in given}
    fields["name"] = given.get("client_name") or _name_from(given)
    fields |= _tolerantly(given)
    method = fields["token_endpoint_auth_method"] = _method(given, offer, errors, before)
    # An update repeats the method that the client was told (RFC 7592 section 2.2), which chooses none.
    is_repeated = (
        before is not None and before.any_secret_method and before.token_endpoint_auth_method == method
    )
    is_chosen = "token_endpoint_auth_method" in given and not is_repeated
    fields["any_secret_method"] = not is_chosen and method in SECRET_METHODS
    fields["type"] = _type(given, method)
    fields["grant_types"] = _grant_types(given, offer, fields["type"], errors)
    if "response_types" in given:
        fields["response_types"] = _response_types(given["response_types"], fields["grant_types"], errors)
    fields["scopes"] = _scopes(given, offer, fields["grant_types"], errors)
    errors.raise_if_any()
    return fields


def replacing(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields for ``update_client`` that replace all metadata: omitted fields get their defaults.

    What only administrators set of roles and claims stays.
    """
    kept = ("name", "type", "app_roles", "claim_mappings")
    return {name: None for name in FIELDS if name not in kept} | dict(fields)


def as_document(client: ClientMetadata, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the RFC 7591 metadata of a client, without empty values."""
    oauth = settings["oauth"]
    document: dict[str, Any] = {
        "client_name": client.name,
        "application_type": NATIVE if client.type in (NATIVE, DEVICE) else WEB,
        "scope": format_scope(client.scopes),
        "grant_types": list(client.grant_types),
        "response_types": list(client.response_types),
        "token_endpoint_auth_method": client.token_endpoint_auth_method,
        "contacts": list(client.contacts) or None,
        "jwks": client.jwks,
    }
    for name in (*_AS_SENT, *_KEPT):
        value = getattr(client, name)
        document[name] = (list(value) or None) if isinstance(value, tuple) else value
    document["id_token_signed_response_alg"] = (
        client.id_token_signed_response_alg or oauth["signing"]["algorithm"]
    )
    return {name: value for name, value in document.items() if value is not None}


def refusal_code(error: InvalidInput) -> str:
    """Return the error code of RFC 7591 section 3.2.2 for invalid metadata."""
    return (
        "invalid_redirect_uri"
        if (error.field or "").startswith("redirect_uris")
        else "invalid_client_metadata"
    )


def refusal_words(error: InvalidInput) -> str:
    """Return the message with characters that ``error_description`` allows (RFC 6749 section 5.2).

    It contains field names and allowed values, never the input.
    """
    words = error.errors[0].message if error.errors else error.description
    named = f"{_RFC7591_NAMES.get(error.field or '', error.field)}: {words}" if error.field else words
    return "".join(char for char in named.replace('"', "'") if " " <= char <= "~" and char != "\\")


def _tolerantly(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the valid contacts and the signing keys. Others are meant for other servers and are ignored."""
    fields: dict[str, Any] = {}
    contacts, jwks = given.get("contacts"), given.get("jwks")
    if isinstance(contacts, list):
        fields["contacts"] = [item for item in contacts if isinstance(item, str) and is_email(item)][:10]
    if isinstance(jwks, dict) and isinstance(jwks.get("keys"), list):
        keys = [key for key in jwks["keys"] if not (isinstance(key, dict) and key.get("use") == "enc")]
        fields["jwks"] = {"keys": keys} if keys else None
    elif jwks is not None:
        fields["jwks"] = jwks
    return fields


def _method(
    given: Mapping[str, Any], offer: Offer, errors: ValidationErrors, before: ClientMetadata | None
) -> Any:
    wanted = given.get("token_endpoint_auth_method")
    if wanted is None:
        keys = "jwks" in given or "jwks_uri" in given
        order = (BASIC, POST, PRIVATE_KEY_JWT, NONE) if keys else (BASIC, POST, NONE)
        is_confidential = before is not None and before.token_endpoint_auth_method != NONE
        if given.get("application_type") == NATIVE and not is_confidential:
            # With a secret it would be a web client, whose loopback port cannot vary (RFC 8252 section 7.3).
            order = (NONE, *order)
        wanted = next((name for name in order if name in offer.auth_methods), order[0])
    # RFC 8252 section 8.5: an app on a user's device can't keep a secret.
    if not isinstance(wanted, str):
        return wanted
    if wanted in SECRET_METHODS and any(is_private_scheme(uri) for uri in _texts(given.get("redirect_uris"))):
        wanted = NONE
    if wanted not in offer.auth_methods:
        listed = ", ".join(offer.auth_methods)
        errors.add("token_endpoint_auth_method", "not_allowed", f"This must be one of: {listed}.")
    return wanted


def _type(given: Mapping[str, Any], method: Any) -> str:
    grants = _texts(given.get("grant_types"))
    if grants and AUTHORIZATION_CODE not in grants and DEVICE_CODE in grants:
        return DEVICE
    if method != NONE:
        return WEB
    uris = _texts(given.get("redirect_uris"))
    is_native = given.get("application_type") == NATIVE or any(
        is_loopback(uri) or is_private_scheme(uri) for uri in uris
    )
    return NATIVE if is_native else SPA


def _grant_types(given: Mapping[str, Any], offer: Offer, kind: str, errors: ValidationErrors) -> Any:
    asked = given.get("grant_types", [AUTHORIZATION_CODE])
    if not isinstance(asked, list) or not all(isinstance(name, str) for name in asked):
        return asked
    possible = CLIENT_TYPES[kind].possible_grant_types
    kept = [name for name in dict.fromkeys(asked) if name in offer.grant_types and name in possible]
    if AUTHORIZATION_CODE not in kept and DEVICE_CODE not in kept:
        usable = ", ".join(name for name in offer.grant_types if name != REFRESH_TOKEN) or "none"
        errors.add("grant_types", "not_allowed", f"Available grant types: {usable}.")
    return kept


def _response_types(asked: Any, grants: Any, errors: ValidationErrors) -> Any:
    if not isinstance(asked, list) or not isinstance(grants, list):
        return asked
    if AUTHORIZATION_CODE not in grants:
        return []
    if "code" not in asked:
        errors.add("response_types", "not_allowed", "The only available response type is code.")
    return ["code"]


def _scopes(given: Mapping[str, Any], offer: Offer, grants: Any, errors: ValidationErrors) -> list[str]:
    without = () if REFRESH_TOKEN in _texts(grants) else ("offline_access",)
    sent = given.get("scope")
    if not sent:
        return [name for name in offer.default_scopes if name not in without]
    asked = parse_scope(sent) if isinstance(sent, str) else None
    if asked is None:
        errors.add("scopes", "invalid_scope", "Enter the scopes as one string, separated by spaces.")
        return []
    kept = [name for name in restrict_scopes(asked, offer.scopes) if name not in without]
    if not kept:
        errors.add("scopes", "unknown_scope", "None of these scopes is available.")
    return kept


def _name_from(given: Mapping[str, Any]) -> str:
    for address in (given.get("client_uri"), *_texts(given.get("redirect_uris"))):
        try:
            host = urlsplit(address).hostname if isinstance(address, str) else None
        except ValueError:
            continue
        if host and host.isascii():
            return host[:100]
    return UNNAMED


def _texts(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
