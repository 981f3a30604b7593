"""Rules between the fields of a client. A rule runs only if the fields that it reads are valid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from app.rules.clients.client_requirements import PROFILE_RULES
from app.rules.clients.client_types import (
    AUTHORIZATION_CODE,
    CLIENT_CREDENTIALS,
    CLIENT_TYPES,
    DEVICE_CODE,
    NONE,
    PRE_APPROVED,
    PRIVATE_KEY_JWT,
    REFRESH_TOKEN,
    TOKEN_EXCHANGE,
)
from app.rules.clients.redirect_uris import sector_problem
from app.rules.fields import FieldProblem, ValidationErrors
from app.rules.scopes import IDENTITY_SCOPES, disallowed_scopes, format_scope

MAX_SCOPE_PARAMETER_LENGTH = 4000
NATIVE, UNVERIFIED = "native", "unverified"

Client = Mapping[str, Any]
Rule = Callable[[Client], FieldProblem | None]


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
        "not_allowed", f"A client of type {client['type']}, {kind.title}, can't use {', '.join(refused)}."
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
    return FieldProblem("not_allowed", f"A client of type {client['type']}, {kind.title}, can use: {listed}.")


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
    return FieldProblem("inconsistent", f"{what} requires the grant type authorization_code.")


def _scopes_fit_grants(client: Client) -> FieldProblem | None:
    scopes, grants = client["scopes"], client["grant_types"]
    if len(format_scope(scopes)) > MAX_SCOPE_PARAMETER_LENGTH:
        return FieldProblem(
            "too_long", f"All scopes together can have at most {MAX_SCOPE_PARAMETER_LENGTH} characters."
        )
    if tuple(grants) == (CLIENT_CREDENTIALS,):
        personal = [scope for scope in scopes if scope in IDENTITY_SCOPES]
        if personal:
            return FieldProblem(
                "inconsistent", f"Tokens of client_credentials have no user. Remove {', '.join(personal)}."
            )
    elif "offline_access" in scopes and REFRESH_TOKEN not in grants:
        return FieldProblem("inconsistent", "offline_access requires the grant type refresh_token.")
    return None


def _optional_are_scopes(client: Client) -> FieldProblem | None:
    optional = client.get("optional_scopes") or ()
    others = disallowed_scopes(optional, client["scopes"])
    if others:
        return FieldProblem("inconsistent", f"Not among the client's scopes: {', '.join(others)}.")
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
        return FieldProblem("inconsistent", "Mark the client as verified before you pre-approve it.")
    if not client.get("approved_scopes"):
        return FieldProblem("inconsistent", "Enter approved_scopes, the scopes that need no consent.")
    return None


_RULES: tuple[tuple[str, tuple[str, ...], Rule], ...] = (
    ("grant_types", (), _grants_fit_type),
    ("grant_types", (), _refresh_has_a_source),
    ("token_endpoint_auth_method", (), _method_fits_type),
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
