"""Requirements of a client: from its metadata, its profile, or its organization."""

from __future__ import annotations

from typing import Any

from app.rules.authorization.authorization_request import is_code_protected
from app.rules.clients.client_coherence import (
    accepted_algorithms,
    required_code_protection,
    requires_dpop,
    requires_par,
    rotates_refresh_tokens,
    signing_algorithm_for,
)
from app.rules.organizations.settings import effective_settings
from tests.support.cases import each

ALL = ("RS256", "PS256", "ES256", "EdDSA")
SECRET = {"token_endpoint_auth_method": "client_secret_basic"}
NONCE = "n-0S6_WzA2Mj"
PUBLIC = {"token_endpoint_auth_method": "none"}
KEYS = {"token_endpoint_auth_method": "private_key_jwt"}
STRONG = ("PS256", "ES256", "EdDSA")


def settings(**oauth: Any) -> dict[str, Any]:
    return effective_settings({"oauth": oauth})


@each(
    ("document", "oauth", "required"),
    [
        ({}, {}, set()),
        ({"dpop_bound_access_tokens": True}, {}, {"dpop"}),
        ({}, {"require_dpop": True}, {"dpop"}),
        ({"require_pushed_authorization_requests": True}, {}, {"par"}),
        ({}, {"require_par": True}, {"par"}),
        # FAPI 2.0 Security Profile section 5.3.2.
        ({"security_profile": "fapi2"}, {}, {"dpop", "par"}),
    ],
)
def test_requirement_comes_from_client_profile_or_organization(
    document: dict[str, Any], oauth: dict[str, Any], required: set[str]
) -> None:
    found = {"dpop": requires_dpop, "par": requires_par}
    assert {name for name, rule in found.items() if rule(document, settings(**oauth))} == required


@each(
    ("profile", "chosen", "accepted"),
    [
        (None, None, ALL),
        (None, "RS256", ("RS256",)),
        (None, "Ed25519", ("EdDSA",)),
        # FAPI 2.0 Security Profile section 5.4.1.
        ("fapi2", None, STRONG),
        ("fapi2", "RS256", ()),
    ],
)
def test_profile_and_registration_restrict_algorithms(
    profile: str | None, chosen: str | None, accepted: tuple[str, ...]
) -> None:
    assert accepted_algorithms({"security_profile": profile}, chosen) == accepted


@each("policy", ["required", "required_or_nonce", "public_clients"])
@each(
    ("document", "source", "is_strict"),
    [
        (SECRET, "person", False),
        (SECRET, "dynamic", False),
        (KEYS, "person", False),
        (KEYS, "metadata_document", True),
        (PUBLIC, "person", True),
        (PUBLIC, "dynamic", True),
        (PUBLIC, "metadata_document", True),
        (SECRET | {"require_pkce": True}, "person", True),
        (KEYS | {"security_profile": "fapi2"}, "person", True),
    ],
)
@each("has_challenge", [True, False])
@each(("nonce", "scopes"), [(None, ["openid"]), (NONCE, ["openid"]), (NONCE, ["email"])])
def test_policy_client_challenge_and_nonce_decide_together(
    policy: str,
    document: dict[str, Any],
    source: str,
    is_strict: bool,
    has_challenge: bool,
    nonce: str | None,
    scopes: list[str],
) -> None:
    """OAuth 2.1 section 7.5.1: a client is never less strict than its organization."""
    needed = required_code_protection(document, settings(pkce=policy), source)
    usual = {"public_clients": "optional"}.get(policy, policy)
    assert needed == ("required" if is_strict else usual)
    has_nonce = nonce is not None and "openid" in scopes
    expected = has_challenge or (
        not is_strict and (policy == "public_clients" or (policy == "required_or_nonce" and has_nonce))
    )
    assert is_code_protected(needed, has_challenge=has_challenge, nonce=nonce, scopes=scopes) is expected


@each(
    ("method", "profile", "bound", "setting", "rotates"),
    [
        ("none", None, False, "public_clients", True),
        ("none", None, True, "public_clients", True),
        ("client_secret_basic", None, False, "always", True),
        ("client_secret_basic", None, False, "public_clients", False),
        ("client_secret_basic", None, True, "always", False),
        ("private_key_jwt", "fapi2", False, "always", False),
    ],
)
def test_bound_confidential_clients_keep_their_refresh_token(
    method: str, profile: str | None, bound: bool, setting: str, rotates: bool
) -> None:
    """Refresh tokens of sender-constrained confidential clients are not rotated (FAPI 2.0)."""
    document = {"token_endpoint_auth_method": method, "security_profile": profile}
    oauth = settings(refresh_token={"rotation": setting})
    assert rotates_refresh_tokens(document, oauth, bound=bound) is rotates


@each(
    ("profile", "chosen", "own", "signed"),
    [
        (None, None, "RS256", "RS256"),
        (None, "EdDSA", "RS256", "EdDSA"),
        ("fapi2", None, "RS256", "PS256"),
        ("fapi2", None, "EdDSA", "EdDSA"),
        ("fapi2", "ES256", "RS256", "ES256"),
    ],
)
def test_profile_excludes_rs256(profile: str | None, chosen: str | None, own: str, signed: str) -> None:
    oauth = settings(signing={"algorithm": own})
    assert signing_algorithm_for({"security_profile": profile}, oauth, chosen) == signed
