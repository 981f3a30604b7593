"""Coherence of a client: rules between its fields, each asked only while the fields it reads are right."""

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
from app.rules.fields import Findings, Problem
from app.rules.scopes import IDENTITY_SCOPES, disallowed_scopes, format_scope

LONGEST_SCOPE_PARAMETER = 4000
NATIVE, UNVERIFIED = "native", "unverified"

Client = Mapping[str, Any]
Rule = Callable[[Client], Problem | None]


def check_coherence(findings: Findings, client: Client) -> None:
    """Note what does not fit together in complete metadata, under the field that has to change."""
    for blamed, reads, rule in _RULES:
        if not any(findings.touches(name) for name in (blamed, *reads)):
            findings.add_problem(blamed, rule(client))


def _grants_fit_type(client: Client) -> Problem | None:
    kind = CLIENT_TYPES[client["type"]]
    if not client["grant_types"]:
        return Problem("required", "A client needs at least one grant type.")
    refused = disallowed_scopes(client["grant_types"], kind.possible_grant_types)
    if not refused:
        return None
    return Problem(
        "not_allowed", f"A client of type {client['type']}, {kind.title}, cannot use {', '.join(refused)}."
    )


def _refresh_has_a_source(client: Client) -> Problem | None:
    grants = client["grant_types"]
    if REFRESH_TOKEN in grants and AUTHORIZATION_CODE not in grants and DEVICE_CODE not in grants:
        return Problem(
            "inconsistent",
            "refresh_token needs a grant that a user gives: authorization_code or device code.",
        )
    return None


def _method_fits_type(client: Client) -> Problem | None:
    kind = CLIENT_TYPES[client["type"]]
    if client["token_endpoint_auth_method"] in kind.auth_methods:
        return None
    listed = ", ".join(kind.auth_methods)
    return Problem("not_allowed", f"A client of type {client['type']}, {kind.title}, can use: {listed}.")


def _responses_fit_grants(client: Client) -> Problem | None:
    if AUTHORIZATION_CODE in client["grant_types"]:
        return (
            None
            if client["response_types"]
            else Problem("inconsistent", 'authorization_code needs "code" here.')
        )
    if client["response_types"]:
        return Problem("inconsistent", "Without the grant type authorization_code there is no response type.")
    return None


def _redirects_fit_grants(client: Client) -> Problem | None:
    uris = client.get("redirect_uris") or ()
    if AUTHORIZATION_CODE in client["grant_types"]:
        if uris:
            return None
        return Problem(
            "required", "Register at least one redirect URI; a client without users says so by type machine."
        )
    return _without_code("a redirect URI") if uris else None


def _logout_redirects_fit_grants(client: Client) -> Problem | None:
    if client.get("post_logout_redirect_uris") and AUTHORIZATION_CODE not in client["grant_types"]:
        return _without_code("a post-logout redirect URI")
    return None


def _without_code(what: str) -> Problem:
    return Problem("inconsistent", f"Without the grant type authorization_code {what} is of no use.")


def _scopes_fit_grants(client: Client) -> Problem | None:
    scopes, grants = client["scopes"], client["grant_types"]
    if len(format_scope(scopes)) > LONGEST_SCOPE_PARAMETER:
        return Problem(
            "too_long", f"All scopes together have more than {LONGEST_SCOPE_PARAMETER} characters."
        )
    if tuple(grants) == (CLIENT_CREDENTIALS,):
        personal = [scope for scope in scopes if scope in IDENTITY_SCOPES]
        if personal:
            return Problem(
                "inconsistent", f"No user stands behind client_credentials: remove {', '.join(personal)}."
            )
    elif "offline_access" in scopes and REFRESH_TOKEN not in grants:
        return Problem("inconsistent", "offline_access needs the grant type refresh_token.")
    return None


def _optional_are_scopes(client: Client) -> Problem | None:
    optional = client.get("optional_scopes") or ()
    others = disallowed_scopes(optional, client["scopes"])
    if others:
        return Problem("inconsistent", f"These are not among the client's scopes: {', '.join(others)}.")
    if "openid" in optional:
        return Problem("inconsistent", "openid cannot be optional: without it there is no sign-in.")
    return None


def _one_key_source(client: Client) -> Problem | None:
    if client.get("jwks") and client.get("jwks_uri"):
        return Problem("inconsistent", "Register keys or their address, not both (RFC 7591 section 2).")
    return None


def _keys_for_assertions(client: Client) -> Problem | None:
    signs = client["token_endpoint_auth_method"] == PRIVATE_KEY_JWT
    if signs and not client.get("jwks") and not client.get("jwks_uri"):
        return Problem("required", "private_key_jwt needs the client's public keys, in jwks or by jwks_uri.")
    return None


def _exchange_has_a_policy(client: Client) -> Problem | None:
    uses = TOKEN_EXCHANGE in client["grant_types"]
    if uses and client.get("token_exchange") is None:
        return Problem(
            "required", "The grant type token-exchange needs a policy: delegation or impersonation."
        )
    if not uses and client.get("token_exchange") is not None:
        return Problem("inconsistent", "Without the grant type token-exchange there is no policy for it.")
    return None


def _approval_fits(client: Client) -> Problem | None:
    if client.get("approval") != PRE_APPROVED:
        return None
    if client["token_endpoint_auth_method"] == NONE or client["type"] == NATIVE:
        return Problem("inconsistent", "A client that cannot prove who it is is asked about each time.")
    if client.get("trust", UNVERIFIED) == UNVERIFIED:
        return Problem("inconsistent", "Mark the client as verified first: nobody else will look at it.")
    if not client.get("approved_scopes"):
        return Problem("inconsistent", "Name the approved_scopes: what of it nobody is asked about.")
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
