"""Requirements that a client must meet.

They come from its metadata, its security profile and its organization's settings. Code that enforces a
requirement calls ``get_client_requirements`` instead of reading single fields, because ``security_profile``
implies several requirements, and the organization can set some for all clients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from app.rules.clients.client_fields import SIGNING_ALGORITHMS
from app.rules.clients.client_types import DEVICE_CODE, NONE, PRIVATE_KEY_JWT
from app.rules.fields import FieldProblem

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


@dataclass(frozen=True, slots=True)
class ClientRequirements:
    """The requirements that a client must meet.

    ``algorithms`` are the JWS algorithms for everything it signs (assertions, request objects, DPoP proofs)
    and everything signed for it. ``issuer_audience``: its assertions and request objects must have the issuer
    as their only ``aud``, a string. ``pushed_requests``: RFC 9126. ``request_objects``: signed, RFC 9101.
    ``dpop``: RFC 9449, with ``dpop_nonce`` if proofs must contain a nonce from this server. ``fapi2``: the
    FAPI 2.0 Security Profile, which implies some of the others.
    """

    fapi2: bool
    pushed_requests: bool
    request_objects: bool
    dpop: bool
    dpop_nonce: bool
    issuer_audience: bool
    algorithms: tuple[str, ...]


def get_client_requirements(document: Mapping[str, Any], settings: Mapping[str, Any]) -> ClientRequirements:
    """Return the requirements of a client in an organization with these effective settings."""
    oauth = settings["oauth"]
    fapi2 = document.get("security_profile") == FAPI2
    return ClientRequirements(
        fapi2=fapi2,
        pushed_requests=(
            fapi2 or bool(document.get("require_pushed_authorization_requests")) or oauth["require_par"]
        ),
        request_objects=bool(document.get("require_signed_request_object")),
        dpop=requires_dpop(document, settings),
        dpop_nonce=requires_dpop_nonce(document),
        issuer_audience=fapi2,
        algorithms=FAPI2_ALGORITHMS if fapi2 else SIGNING_ALGORITHMS,
    )


def requires_dpop(document: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    """Return whether every token of the client must be bound to a key (RFC 9449 section 5.2)."""
    return bool(
        document.get("dpop_bound_access_tokens")
        or document.get("security_profile") == FAPI2
        or settings["oauth"]["require_dpop"]
    )


def requires_dpop_nonce(document: Mapping[str, Any]) -> bool:
    """Return whether the client's proofs must contain a nonce from this server (RFC 9449 section 8).

    A FAPI client must not be able to prepare proofs for later use.
    """
    return document.get("security_profile") == FAPI2


def rotates_refresh_tokens(document: Mapping[str, Any], settings: Mapping[str, Any], *, bound: bool) -> bool:
    """Return whether a refresh token changes at each use (RFC 9700 section 4.14.2).

    ``bound`` is set if the tokens are bound to a key. A thief cannot use a confidential client's refresh
    token then, and without rotation a lost response does not revoke the grant (FAPI 2.0 Security Profile
    section 5.3.2.1).
    """
    if document["token_endpoint_auth_method"] == NONE:
        return True
    if bound or document.get("security_profile") == FAPI2:
        return False
    return bool(settings["oauth"]["refresh_token"]["rotation"] == "always")


def signing_algorithm_for(
    document: Mapping[str, Any], settings: Mapping[str, Any], chosen: str | None = None
) -> str:
    """Return the algorithm of JWTs for the client.

    It is ``chosen``, or the organization's, or the first of the profile if the profile excludes that one.
    """
    algorithm = str(chosen or settings["oauth"]["signing"]["algorithm"])
    if document.get("security_profile") == FAPI2 and algorithm not in FAPI2_ALGORITHMS:
        return FAPI2_ALGORITHMS[0]
    return algorithm


def profile_allows_auth_method(auth_method: str, client: Client) -> bool:
    """Return whether the client's profile, if any, allows the method (FAPI 2.0 section 5.3.2.1)."""
    return client.get("security_profile") != FAPI2 or auth_method == PRIVATE_KEY_JWT


def _if_fapi2(rule: Rule) -> Rule:
    return lambda client: rule(client) if client.get("security_profile") == FAPI2 else None


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
        if client.get(name) in (None, *FAPI2_ALGORITHMS):
            return None
        return FieldProblem(
            "inconsistent", f"The security profile fapi2 allows only {', '.join(FAPI2_ALGORITHMS)}."
        )

    return rule


# As in client_coherence: the field to report, the other fields that the rule reads, and the rule.
PROFILE_RULES: tuple[tuple[str, tuple[str, ...], Rule], ...] = (
    ("token_endpoint_auth_method", ("security_profile",), _if_fapi2(_require_private_key_jwt)),
    ("grant_types", ("security_profile",), _if_fapi2(_exclude_device_grant)),
    ("redirect_uris", ("security_profile",), _if_fapi2(_require_https_redirects)),
    *((name, ("security_profile",), _if_fapi2(_require_algorithm(name))) for name in _ALGORITHM_FIELDS),
)
