"""ID tokens (OpenID Connect Core section 2)."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from app.operations.directory.lookups import ClientSnapshot
from app.operations.directory.users import get_user
from app.operations.grants import signing_keys
from app.operations.grants.token_snapshots import TokenSnapshot
from app.operations.store import keyring
from app.operations.tokens import tokens
from app.rules.authorization.claims_parameter import USERINFO, names_for
from app.rules.clients.client_requirements import signing_algorithm_for
from app.rules.clients.redirect_uris import PAIRWISE, find_sector
from app.rules.errors import Unauthenticated
from app.rules.identifiers import encode_uuid, public_id
from app.rules.tokens.claims import claims_for, left_half_hash


def subject_of(client: ClientSnapshot, user_id: UUID) -> str:
    """The same for ever, in ID tokens, userinfo, introspection and JWT access tokens of the client alike.

    A ``pairwise`` client shares it with the clients of its sector alone: another sector's cannot be told to be the
    same user's. It is keyed by the organization's data key, which outlives the master key that wraps it.
    """
    if client.document.get("subject_type") != PAIRWISE:
        return public_id("usr", user_id)
    key = keyring.derive_organization_key(client.organization.id, "pairwise subjects")
    # Section 8.1: sector and user, and a secret; the NUL can stand in neither.
    text = f"{find_sector(client.document)}\0{user_id}".encode()
    made = hmac.digest(key, text, hashlib.sha256)
    return f"pws_{encode_uuid(UUID(bytes=made[:16]))}"


@dataclass(frozen=True, slots=True)
class Facts:
    """What an ID token says of a sign-in. ``nonce`` is None when none was sent.

    ``asked`` are claims of the user that the request asked for by name (OIDC Core 5.5).
    """

    subject: str
    auth_time: datetime
    amr: str
    nonce: str | None
    session_id: UUID | None
    acr: str | None = None
    asked: Mapping[str, Any] = field(default_factory=dict)


def algorithm_of(client: ClientSnapshot) -> str:
    """The algorithm the client was registered with, or its organization's."""
    chosen = client.document.get("id_token_signed_response_alg")
    return signing_algorithm_for(client.document, client.organization.settings, chosen)


def sign_id_token(client: ClientSnapshot, facts: Facts, *, access_token: str, now: datetime) -> str:
    """A signed ID token for the client: who signed in, when and how, and what else was asked for by name.

    ``auth_time`` is always told: some clients need it, and none is harmed (OIDC Core section 2).
    """
    issued_at = int(now.timestamp())
    algorithm = algorithm_of(client)
    claims: dict[str, Any] = {
        # First, so that whatever a user says of themselves overwrites nothing (OI-2).
        **facts.asked,
        "iss": client.organization.issuer,
        "sub": facts.subject,
        "aud": client.client_id,
        "exp": issued_at + client.organization.settings["oauth"]["id_token_ttl_seconds"],
        "iat": issued_at,
        "auth_time": int(facts.auth_time.timestamp()),
        "amr": facts.amr.split(),
        "at_hash": left_half_hash(access_token, algorithm),
    }
    if facts.acr is not None:
        claims["acr"] = facts.acr
    if facts.nonce is not None:
        claims["nonce"] = facts.nonce
    if facts.session_id is not None:
        claims["sid"] = public_id("ses", facts.session_id)
    return signing_keys.sign_jwt(client.organization, algorithm, claims, token_type="JWT")  # noqa: S106 - a header, no password


def find_user_token(token: str, *, organization_id: str | None) -> TokenSnapshot | None:
    """Return the valid access token of a user; ``organization_id`` narrows it to one organization."""
    view = tokens.find_token(token, organization_id=organization_id)
    return None if view is None or view.user_id is None else view


def claims_of(view: TokenSnapshot) -> dict[str, Any]:
    """Return the user's claims that the token's scopes release (OIDC Core 5.4) or that were requested by name (5.5).

    Raises Unauthenticated for a token that is meant for another resource.
    """
    organization = view.client.organization
    if organization.issuer not in view.audience or view.user_id is None:
        raise Unauthenticated("The access token is meant for another resource.")
    user = get_user(organization.id, view.user_id)
    claims = claims_for(user.claims, view.scopes, names_for(view.claims, USERINFO))
    # Last, so that nothing overwrites it: the subject as in the client's ID tokens.
    claims["sub"] = subject_of(view.client, view.user_id)
    return claims


def sign(client: ClientSnapshot, claims: Mapping[str, Any]) -> str | None:
    """Return the claims as a JWT if the client registered an algorithm for them (OIDC Core 5.3.2), else None."""
    chosen = client.document.get("userinfo_signed_response_alg")
    if chosen is None:
        return None
    organization = client.organization
    algorithm = signing_algorithm_for(client.document, organization.settings, chosen)
    whole = {**claims, "iss": organization.issuer, "aud": client.client_id}
    return signing_keys.sign_jwt(organization, algorithm, whole, token_type="JWT")  # noqa: S106 - a header, no password
