"""What the FAPI 2.0 Security Profile asks of a client's metadata, one message a field.

``security_profile: "fapi2"`` is one switch. What it demands of requests (pushed, with a DPoP proof) needs no other
field: ``demands`` says it. Here stands what the client has to have chosen itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from app.rules.fields import Problem
from app.rules.registration.client_types import DEVICE_CODE, PRIVATE_KEY_JWT
from app.rules.registration.demands import FAPI2, FAPI2_ALGORITHMS

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
