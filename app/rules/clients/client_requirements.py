"""What is demanded of a client: its own fields, its security profile and its organization's settings, as one answer.

Whoever enforces a demand asks ``requires`` and never a single field: ``security_profile`` is one switch that turns on
several demands, and the organization can make some of them of all its clients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from app.rules.clients.client_fields import SIGNING_ALGORITHMS
from app.rules.clients.client_types import DEVICE_CODE, NONE, PRIVATE_KEY_JWT
from app.rules.fields import Problem

FAPI2 = "fapi2"
# FAPI 2.0 Security Profile section 5.4.1: no RSASSA-PKCS1-v1_5.
FAPI2_ALGORITHMS = ("PS256", "ES256", "EdDSA")


@dataclass(frozen=True, slots=True)
class Demands:
    """What this client must do.

    ``algorithms`` are the JWS algorithms of all that it signs (assertions, request objects, DPoP proofs) and of all
    that is signed for it. ``issuer_audience``: the one ``aud`` of its assertions and request objects is the issuer,
    as a string. ``pushed_requests``: RFC 9126; ``request_objects``: RFC 9101, signed; ``dpop``: RFC 9449, with
    ``dpop_nonce`` where proofs must hold a nonce of ours. ``fapi2``: the FAPI 2.0 Security Profile, which is the
    cause of some of the others.
    """

    fapi2: bool
    pushed_requests: bool
    request_objects: bool
    dpop: bool
    dpop_nonce: bool
    issuer_audience: bool
    algorithms: tuple[str, ...]


def requires(document: Mapping[str, Any], settings: Mapping[str, Any]) -> Demands:
    """What the client with this document must do in an organization with these effective settings."""
    oauth = settings["oauth"]
    fapi2 = document.get("security_profile") == FAPI2
    return Demands(
        fapi2=fapi2,
        pushed_requests=(
            fapi2 or bool(document.get("require_pushed_authorization_requests")) or oauth["require_par"]
        ),
        request_objects=bool(document.get("require_signed_request_object")),
        dpop=needs_dpop(document, settings),
        dpop_nonce=needs_dpop_nonce(document),
        issuer_audience=fapi2,
        algorithms=FAPI2_ALGORITHMS if fapi2 else SIGNING_ALGORITHMS,
    )


def needs_dpop(document: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    """Whether every token of the client must be bound to a key (RFC 9449 section 5.2); asked on each token request."""
    return bool(
        document.get("dpop_bound_access_tokens")
        or document.get("security_profile") == FAPI2
        or settings["oauth"]["require_dpop"]
    )


def needs_dpop_nonce(document: Mapping[str, Any]) -> bool:
    """Whether the client's proofs must hold a nonce of ours (RFC 9449 section 8).

    A FAPI client may not prepare proofs for later: its proofs name a moment that we chose.
    """
    return document.get("security_profile") == FAPI2


def rotates_refresh_tokens(document: Mapping[str, Any], settings: Mapping[str, Any], *, bound: bool) -> bool:
    """Whether a refresh token changes at each use (RFC 9700 section 4.14.2).

    ``bound`` says that the tokens are bound to a key: a confidential client's refresh token is then worth nothing to
    a thief, and a lost answer must not end its grant (FAPI 2.0 Security Profile section 5.3.2.1).
    """
    if document["token_endpoint_auth_method"] == NONE:
        return True
    if bound or document.get("security_profile") == FAPI2:
        return False
    return bool(settings["oauth"]["refresh_token"]["rotation"] == "always")


def algorithm_for(document: Mapping[str, Any], settings: Mapping[str, Any], chosen: str | None = None) -> str:
    """The algorithm of what is signed for the client: ``chosen``, or the organization's where the profile takes it."""
    algorithm = str(chosen or settings["oauth"]["signing"]["algorithm"])
    if document.get("security_profile") == FAPI2 and algorithm not in FAPI2_ALGORITHMS:
        return FAPI2_ALGORITHMS[0]
    return algorithm


Client = Mapping[str, Any]
Rule = Callable[[Client], Problem | None]


def fits_profile(auth_method: str, client: Client) -> bool:
    """Whether the profile, if the client has one, lets it authenticate so (FAPI 2.0 section 5.3.2.1)."""
    return client.get("security_profile") != FAPI2 or auth_method == PRIVATE_KEY_JWT


def _of_profile(rule: Rule) -> Rule:
    return lambda client: rule(client) if client.get("security_profile") == FAPI2 else None


def _authenticates_by_key(client: Client) -> Problem | None:
    """FAPI 2.0 section 5.3.2.1; mutual TLS is not offered here."""
    if fits_profile(client["token_endpoint_auth_method"], client):
        return None
    return Problem(
        "inconsistent",
        "The security profile fapi2 needs private_key_jwt, which clients of type web and machine can use.",
    )


def _grants_of_profile(client: Client) -> Problem | None:
    """Its attacker model is that of the code flow; nothing binds a device's code to the browser that allows it."""
    if DEVICE_CODE not in client["grant_types"]:
        return None
    return Problem("inconsistent", "The security profile fapi2 does not cover the device grant.")


def _redirects_by_https(client: Client) -> Problem | None:
    """FAPI 2.0 section 5.3.2.2."""
    if all(uri.startswith("https://") for uri in client.get("redirect_uris") or ()):
        return None
    return Problem("inconsistent", "The security profile fapi2 takes redirect URIs with https alone.")


def _signed_by(name: str) -> Rule:
    """FAPI 2.0 section 5.4.1."""

    def rule(client: Client) -> Problem | None:
        if client.get(name) in (None, *FAPI2_ALGORITHMS):
            return None
        return Problem(
            "inconsistent", f"The security profile fapi2 takes {', '.join(FAPI2_ALGORITHMS)} alone."
        )

    return rule


_ALGORITHM_FIELDS = (
    "id_token_signed_response_alg",
    "userinfo_signed_response_alg",
    "introspection_signed_response_alg",
    "request_object_signing_alg",
    "token_endpoint_auth_signing_alg",
)
# As in client_coherence: the field to blame, the others that are read, the rule.
PROFILE_RULES: tuple[tuple[str, tuple[str, ...], Rule], ...] = (
    ("token_endpoint_auth_method", ("security_profile",), _of_profile(_authenticates_by_key)),
    ("grant_types", ("security_profile",), _of_profile(_grants_of_profile)),
    ("redirect_uris", ("security_profile",), _of_profile(_redirects_by_https)),
    *((name, ("security_profile",), _of_profile(_signed_by(name))) for name in _ALGORITHM_FIELDS),
)
