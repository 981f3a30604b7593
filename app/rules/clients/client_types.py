"""Types of clients: what each one is, its defaults, and what else it may use."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from app.rules.clients.redirect_uris import is_private_scheme
from app.rules.scopes import DEFAULT_SCOPES

REVIEW, ALLOWED, PRE_APPROVED, BLOCKED = "review", "allowed", "pre_approved", "blocked"
APPROVALS = (REVIEW, ALLOWED, PRE_APPROVED, BLOCKED)
ALL, VERIFIED, NO_APPROVAL = "all", "verified", "none"
MEMBERS_MAY_ALLOW = (ALL, VERIFIED, NO_APPROVAL)
_FIRST_PARTY, _UNVERIFIED = "first_party", "unverified"


def can_user_allow(*, approval: str | None, trust: str, setting: str, decides: bool) -> bool:
    """Return whether the user may allow the client without administrator approval.

    ``approval`` is the decision about this client; without one, the organization's ``setting`` applies. ``decides``:
    the user may decide about clients. First-party apps need no approval.
    """
    if approval == BLOCKED:
        return False
    if decides or trust == _FIRST_PARTY or approval in (ALLOWED, PRE_APPROVED):
        return True
    if approval == REVIEW or setting == NO_APPROVAL:
        return False
    return setting == ALL or trust != _UNVERIFIED


def is_pre_approved(
    requested: Collection[str], *, approval: str | None, approved_scopes: Collection[str], trust: str
) -> bool:
    """Return whether administrators approved all requested scopes for all users (CO-2)."""
    return approval == PRE_APPROVED and trust != _UNVERIFIED and set(requested) <= set(approved_scopes)


IMPERSONATION, DELEGATION = "impersonation", "delegation"


# Token exchange policies: tokens with the acting client in the act claim, or without it.
POLICIES = (DELEGATION, IMPERSONATION)


AUTHORIZATION_CODE = "authorization_code"
REFRESH_TOKEN = "refresh_token"
CLIENT_CREDENTIALS = "client_credentials"
DEVICE_CODE = "urn:ietf:params:oauth:grant-type:device_code"
TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
GRANT_TYPES = (AUTHORIZATION_CODE, REFRESH_TOKEN, CLIENT_CREDENTIALS, DEVICE_CODE, TOKEN_EXCHANGE)

BASIC, POST, PRIVATE_KEY_JWT, NONE = "client_secret_basic", "client_secret_post", "private_key_jwt", "none"
AUTH_METHODS = (BASIC, POST, PRIVATE_KEY_JWT, NONE)
SECRET_METHODS = frozenset({BASIC, POST})


@dataclass(frozen=True, slots=True)
class ClientType:
    """One type: ``grant_types`` and the first of ``auth_methods`` are its defaults."""

    title: str
    grant_types: tuple[str, ...]
    possible_grant_types: tuple[str, ...]
    auth_methods: tuple[str, ...]
    scopes: tuple[str, ...]


CLIENT_TYPES: Mapping[str, ClientType] = {
    "web": ClientType(
        "a web application on a server",
        (AUTHORIZATION_CODE, REFRESH_TOKEN),
        GRANT_TYPES,
        (BASIC, POST, PRIVATE_KEY_JWT),
        DEFAULT_SCOPES,
    ),
    "spa": ClientType(
        "a single-page application",
        (AUTHORIZATION_CODE, REFRESH_TOKEN),
        (AUTHORIZATION_CODE, REFRESH_TOKEN),
        (NONE,),
        DEFAULT_SCOPES,
    ),
    "native": ClientType(
        "a mobile, desktop or command line application",
        (AUTHORIZATION_CODE, REFRESH_TOKEN),
        (AUTHORIZATION_CODE, REFRESH_TOKEN, DEVICE_CODE),
        (NONE,),
        DEFAULT_SCOPES,
    ),
    "machine": ClientType(
        "a service without users",
        (CLIENT_CREDENTIALS,),
        (CLIENT_CREDENTIALS, TOKEN_EXCHANGE),
        (BASIC, POST, PRIVATE_KEY_JWT),
        (),
    ),
    "device": ClientType(
        "a television or other limited device",
        (DEVICE_CODE, REFRESH_TOKEN),
        (DEVICE_CODE, REFRESH_TOKEN),
        (NONE, BASIC, POST, PRIVATE_KEY_JWT),
        DEFAULT_SCOPES,
    ),
}


def derive_type(fields: Mapping[str, Any]) -> str:
    """Return the type of a client from its other fields. Values with a wrong JSON type are ignored."""
    grants = _texts(fields.get("grant_types"))
    if grants and AUTHORIZATION_CODE not in grants:
        return "device" if DEVICE_CODE in grants else "machine"
    uris = _texts(fields.get("redirect_uris"))
    if any(is_private_scheme(uri) for uri in uris):
        return "native"
    if fields.get("token_endpoint_auth_method") == NONE:
        return "native" if uris and all(uri.startswith("http://") for uri in uris) else "spa"
    return "web"


def _texts(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, (list, tuple)) else []
