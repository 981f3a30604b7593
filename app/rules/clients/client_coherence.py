"""Rules between the fields of a client, and the requirements that follow from its security profile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from app.rules.clients.client_assertions import name_algorithm
from app.rules.clients.client_types import (
    AUTHORIZATION_CODE,
    CLIENT_CREDENTIALS,
    CLIENT_TYPES,
    DEVICE_CODE,
    METADATA_DOCUMENT,
    NATIVE,
    NONE,
    PRE_APPROVED,
    PRIVATE_KEY_JWT,
    REFRESH_TOKEN,
    SECRET_METHODS,
    SIGNING_ALGORITHMS,
    TOKEN_EXCHANGE,
    UNVERIFIED,
)
from app.rules.clients.redirect_uris import sector_problem
from app.rules.directory.attributes import Attribute, attributes_of
from app.rules.fields import FieldProblem, ValidationErrors
from app.rules.languages.translation import lazy_gettext
from app.rules.scopes import OPENID_SCOPES, disallowed_scopes, format_scope

FAPI2 = "fapi2"
# FAPI 2.0 Security Profile section 5.4.1: no RSASSA-PKCS1-v1_5.
FAPI2_ALGORITHMS = ("PS256", "ES256", "EdDSA")
Client = Mapping[str, Any]
Rule = Callable[[Client], FieldProblem | None]
_ALGORITHM_FIELDS = (
    "id_token_signed_response_alg",
    "userinfo_signed_response_alg",
    "introspection_signed_response_alg",
    "request_object_signing_alg",
    "token_endpoint_auth_signing_alg",
)

MAX_SCOPE_PARAMETER_LENGTH = 4000
# What protects a client's codes from injection, from the strictest. The first two are also values of ``oauth.pkce``.
PKCE_REQUIRED, PKCE_OR_NONCE, PKCE_OPTIONAL = "required", "required_or_nonce", "optional"
CODE_PROTECTIONS = (PKCE_REQUIRED, PKCE_OR_NONCE, PKCE_OPTIONAL)


def is_fapi2(document: Mapping[str, Any]) -> bool:
    """Return whether the client follows the FAPI 2.0 Security Profile.

    Its one audience in assertions and request objects is the issuer, its proofs contain a nonce from this server so
    that they cannot be prepared for later use (RFC 9449 section 8), and what follows here applies to it.
    """
    return document.get("security_profile") == FAPI2


def requires_par(document: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    """Return whether the client must push its authorization requests (RFC 9126)."""
    return bool(
        is_fapi2(document)
        or document.get("require_pushed_authorization_requests")
        or settings["oauth"]["require_par"]
    )


def accepted_algorithms(document: Mapping[str, Any], chosen: str | None) -> tuple[str, ...]:
    """Return the JWS algorithms of what the client signs: ``chosen`` if it registered one, as far as allowed."""
    allowed = FAPI2_ALGORITHMS if is_fapi2(document) else SIGNING_ALGORITHMS
    return tuple(name for name in allowed if chosen is None or name == name_algorithm(chosen))


def required_code_protection(document: Mapping[str, Any], settings: Mapping[str, Any], source: str) -> str:
    """Return the protection that the client's codes need, one of CODE_PROTECTIONS (OAuth 2.1 section 7.5.1).

    Public clients and agents with a metadata document always need PKCE, whatever the organization's policy: nothing
    else binds a code to them, and how they verify a nonce is not reviewed. So do clients with the FAPI 2.0 profile
    (section 5.3.2.2).
    """
    policy = settings["oauth"]["pkce"]
    if (
        document["token_endpoint_auth_method"] == NONE
        or source == METADATA_DOCUMENT
        or is_fapi2(document)
        or document.get("require_pkce")
        or policy == PKCE_REQUIRED
    ):
        return PKCE_REQUIRED
    return PKCE_OR_NONCE if policy == PKCE_OR_NONCE else PKCE_OPTIONAL


def requires_dpop(document: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    """Return whether every token of the client must be bound to a key (RFC 9449 section 5.2)."""
    return bool(
        document.get("dpop_bound_access_tokens") or is_fapi2(document) or settings["oauth"]["require_dpop"]
    )


def rotates_refresh_tokens(document: Mapping[str, Any], settings: Mapping[str, Any], *, bound: bool) -> bool:
    """Return whether a refresh token changes at each use (RFC 9700 section 4.14.2).

    ``bound`` is set if the tokens are bound to a key. A thief cannot use a confidential client's refresh
    token then, and without rotation a lost response does not revoke the grant (FAPI 2.0 Security Profile
    section 5.3.2.1).
    """
    if document["token_endpoint_auth_method"] == NONE:
        return True
    if bound or is_fapi2(document):
        return False
    return bool(settings["oauth"]["refresh_token"]["rotation"] == "always")


def signing_algorithm_for(
    document: Mapping[str, Any], settings: Mapping[str, Any], chosen: str | None = None
) -> str:
    """Return the algorithm of JWTs for the client.

    It is ``chosen``, or the organization's, or the first of the profile if the profile excludes that one.
    """
    algorithm = str(chosen or settings["oauth"]["signing"]["algorithm"])
    if is_fapi2(document) and algorithm not in FAPI2_ALGORITHMS:
        return FAPI2_ALGORITHMS[0]
    return algorithm


def profile_allows_auth_method(auth_method: str, client: Client) -> bool:
    """Return whether the client's profile, if any, allows the method (FAPI 2.0 section 5.3.2.1)."""
    return not is_fapi2(client) or auth_method == PRIVATE_KEY_JWT


def _if_fapi2(rule: Rule) -> Rule:
    return lambda client: rule(client) if is_fapi2(client) else None


def _require_private_key_jwt(client: Client) -> FieldProblem | None:
    """Require private_key_jwt (FAPI 2.0 section 5.3.2.1). Mutual TLS is not supported here."""
    if profile_allows_auth_method(client["token_endpoint_auth_method"], client):
        return None
    return FieldProblem(
        "inconsistent",
        "The security profile fapi2 requires private_key_jwt, which clients of type web and machine can use.",
    )


def _exclude_device_grant(client: Client) -> FieldProblem | None:
    """Exclude the device grant.

    The profile's attacker model covers the code flow. A device code is not bound to the browser that approves
    it.
    """
    if DEVICE_CODE not in client["grant_types"]:
        return None
    return FieldProblem("inconsistent", "The security profile fapi2 does not allow the device grant.")


def _require_https_redirects(client: Client) -> FieldProblem | None:
    """Require https redirect URIs (FAPI 2.0 section 5.3.2.2)."""
    if all(uri.startswith("https://") for uri in client.get("redirect_uris") or ()):
        return None
    return FieldProblem("inconsistent", "The security profile fapi2 allows only https redirect URIs.")


def _require_algorithm(name: str) -> Rule:
    """Require an algorithm of the profile (FAPI 2.0 section 5.4.1)."""

    def rule(client: Client) -> FieldProblem | None:
        if (chosen := client.get(name)) is None or name_algorithm(chosen) in FAPI2_ALGORITHMS:
            return None
        return FieldProblem(
            "inconsistent",
            lazy_gettext(
                "The security profile fapi2 allows only %(fapi2_algorithms)s.",
                fapi2_algorithms=", ".join(FAPI2_ALGORITHMS),
            ),
        )

    return rule


# The field to report, the other fields that the rule reads, and the rule.
PROFILE_RULES: tuple[tuple[str, tuple[str, ...], Rule], ...] = (
    ("token_endpoint_auth_method", ("security_profile",), _if_fapi2(_require_private_key_jwt)),
    ("grant_types", ("security_profile",), _if_fapi2(_exclude_device_grant)),
    ("redirect_uris", ("security_profile",), _if_fapi2(_require_https_redirects)),
    *((name, ("security_profile",), _if_fapi2(_require_algorithm(name))) for name in _ALGORITHM_FIELDS),
)


def check_coherence(errors: ValidationErrors, client: Client) -> None:
    """Add what is inconsistent in complete metadata, for the field that has to change."""
    for field, reads, rule in _RULES:
        if not any(errors.has_error(name) for name in (field, *reads)):
            errors.add_problem(field, rule(client))


def _grants_fit_type(client: Client) -> FieldProblem | None:
    kind = CLIENT_TYPES[client["type"]]
    if not client["grant_types"]:
        return FieldProblem("required", "Select at least one grant type.")
    refused = disallowed_scopes(client["grant_types"], kind.possible_grant_types)
    if not refused:
        return None
    return FieldProblem(
        "not_allowed",
        lazy_gettext(
            "A client of type %(type)s, %(title)s, can't use %(refused)s.",
            type=client["type"],
            title=kind.title,
            refused=", ".join(refused),
        ),
    )


def _refresh_has_a_source(client: Client) -> FieldProblem | None:
    grants = client["grant_types"]
    if REFRESH_TOKEN in grants and AUTHORIZATION_CODE not in grants and DEVICE_CODE not in grants:
        return FieldProblem(
            "inconsistent",
            "refresh_token requires authorization_code or the device code grant.",
        )
    return None


def _method_fits_type(client: Client) -> FieldProblem | None:
    kind = CLIENT_TYPES[client["type"]]
    if client["token_endpoint_auth_method"] in kind.auth_methods:
        return None
    listed = ", ".join(kind.auth_methods)
    return FieldProblem(
        "not_allowed",
        lazy_gettext(
            "A client of type %(type)s, %(title)s, can use: %(listed)s.",
            type=client["type"],
            title=kind.title,
            listed=listed,
        ),
    )


def _secret_methods_fit_method(client: Client) -> FieldProblem | None:
    if client.get("any_secret_method") and client["token_endpoint_auth_method"] not in SECRET_METHODS:
        return FieldProblem(
            "inconsistent", "Only a client that authenticates with a secret can use any method for it."
        )
    return None


def _responses_fit_grants(client: Client) -> FieldProblem | None:
    if AUTHORIZATION_CODE in client["grant_types"]:
        return (
            None
            if client["response_types"]
            else FieldProblem("inconsistent", 'authorization_code requires the response type "code".')
        )
    if client["response_types"]:
        return FieldProblem("inconsistent", "A response type requires the grant type authorization_code.")
    return None


def _redirects_fit_grants(client: Client) -> FieldProblem | None:
    uris = client.get("redirect_uris") or ()
    if AUTHORIZATION_CODE in client["grant_types"]:
        if uris:
            return None
        return FieldProblem(
            "required", "Enter at least one redirect URI, or use the type machine for a client without users."
        )
    return _without_code("A redirect URI") if uris else None


def _logout_redirects_fit_grants(client: Client) -> FieldProblem | None:
    if client.get("post_logout_redirect_uris") and AUTHORIZATION_CODE not in client["grant_types"]:
        return _without_code("A post-logout redirect URI")
    return None


def _without_code(what: str) -> FieldProblem:
    return FieldProblem(
        "inconsistent", lazy_gettext("%(what)s requires the grant type authorization_code.", what=what)
    )


def _scopes_fit_grants(client: Client) -> FieldProblem | None:
    scopes, grants = client["scopes"], client["grant_types"]
    if len(format_scope(scopes)) > MAX_SCOPE_PARAMETER_LENGTH:
        return FieldProblem(
            "too_long",
            lazy_gettext(
                "All scopes together can have at most %(max_scope_parameter_length)s characters.",
                max_scope_parameter_length=MAX_SCOPE_PARAMETER_LENGTH,
            ),
        )
    if tuple(grants) == (CLIENT_CREDENTIALS,):
        personal = [scope for scope in scopes if scope in OPENID_SCOPES]
        if personal:
            return FieldProblem(
                "inconsistent",
                lazy_gettext(
                    "Tokens of client_credentials have no user. Remove %(personal)s.",
                    personal=", ".join(personal),
                ),
            )
    elif "offline_access" in scopes and REFRESH_TOKEN not in grants:
        return FieldProblem("inconsistent", "offline_access requires the grant type refresh_token.")
    return None


def _optional_are_scopes(client: Client) -> FieldProblem | None:
    optional = client.get("optional_scopes") or ()
    others = disallowed_scopes(optional, client["scopes"])
    if others:
        return FieldProblem(
            "inconsistent",
            lazy_gettext("Not among the client's scopes: %(others)s.", others=", ".join(others)),
        )
    if "openid" in optional:
        return FieldProblem("inconsistent", "openid can't be optional, because it is required to sign in.")
    return None


def _one_key_source(client: Client) -> FieldProblem | None:
    if client.get("jwks") and client.get("jwks_uri"):
        return FieldProblem("inconsistent", "Enter jwks or jwks_uri, not both (RFC 7591 section 2).")
    return None


def _keys_for_assertions(client: Client) -> FieldProblem | None:
    signs = client["token_endpoint_auth_method"] == PRIVATE_KEY_JWT
    if signs and not client.get("jwks") and not client.get("jwks_uri"):
        return FieldProblem(
            "required", "private_key_jwt requires the client's public keys. Enter jwks or jwks_uri."
        )
    return None


def _exchange_has_a_policy(client: Client) -> FieldProblem | None:
    uses = TOKEN_EXCHANGE in client["grant_types"]
    if uses and client.get("token_exchange") is None:
        return FieldProblem(
            "required", "The grant type token-exchange requires a policy: delegation or impersonation."
        )
    if not uses and client.get("token_exchange") is not None:
        return FieldProblem("inconsistent", "A policy requires the grant type token-exchange.")
    return None


def _approval_fits(client: Client) -> FieldProblem | None:
    if client.get("approval") != PRE_APPROVED:
        return None
    if client["token_endpoint_auth_method"] == NONE or client["type"] == NATIVE:
        return FieldProblem("inconsistent", "Only a client that can authenticate can be pre-approved.")
    if client.get("trust", UNVERIFIED) == UNVERIFIED:
        return FieldProblem(
            "inconsistent", "Mark the client as reviewed (trust: verified) before you pre-approve it."
        )
    if not client.get("approved_scopes"):
        return FieldProblem("inconsistent", "Enter approved_scopes, the scopes that need no consent.")
    return None


_RULES: tuple[tuple[str, tuple[str, ...], Rule], ...] = (
    ("grant_types", (), _grants_fit_type),
    ("grant_types", (), _refresh_has_a_source),
    ("token_endpoint_auth_method", (), _method_fits_type),
    ("any_secret_method", ("token_endpoint_auth_method",), _secret_methods_fit_method),
    ("response_types", ("grant_types",), _responses_fit_grants),
    ("redirect_uris", ("grant_types",), _redirects_fit_grants),
    ("post_logout_redirect_uris", ("grant_types",), _logout_redirects_fit_grants),
    ("scopes", ("grant_types",), _scopes_fit_grants),
    ("optional_scopes", ("scopes",), _optional_are_scopes),
    ("token_exchange", ("grant_types",), _exchange_has_a_policy),
    ("subject_type", ("redirect_uris", "sector_identifier_uri"), sector_problem),
    ("jwks_uri", ("jwks",), _one_key_source),
    ("jwks", ("jwks_uri", "token_endpoint_auth_method"), _keys_for_assertions),
    (
        "approval",
        ("trust", "type", "token_endpoint_auth_method", "approved_scopes"),
        _approval_fits,
    ),
    *PROFILE_RULES,
)


class ClientPolicy(Struct, frozen=True):
    """The limits that the organization's settings set for its clients."""

    grant_types: tuple[str, ...]
    auth_methods: tuple[str, ...]
    redirect_hosts: tuple[str, ...] = ()
    max_redirect_uris: int = 50
    base_url: str = ""
    attributes: tuple[Attribute, ...] = ()

    @classmethod
    def of_settings(cls, settings: Mapping[str, Any], base_url: str = "") -> ClientPolicy:
        """Return the policy in an effective settings document; ``base_url`` is the URL of this service."""
        oauth = settings["oauth"]
        return cls(
            grant_types=tuple(oauth["grant_types"]),
            auth_methods=tuple(oauth["clients"]["token_endpoint_auth_methods"]),
            redirect_hosts=tuple(oauth["redirect_uris"]["allowed_hosts"]),
            max_redirect_uris=oauth["redirect_uris"]["max_per_client"],
            base_url=base_url,
            attributes=attributes_of(settings),
        )
