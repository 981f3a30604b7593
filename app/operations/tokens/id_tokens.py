"""ID tokens and userinfo claims (OpenID Connect Core sections 2 and 5.3)."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import Struct, field

from app.operations.directory.snapshots import ClientSnapshot
from app.operations.directory.users import get_user
from app.operations.grants import signing_keys
from app.operations.grants.grants import TokenSnapshot
from app.operations.store import keyring
from app.operations.tokens import tokens
from app.operations.tokens.app_claims import load_app_claims
from app.rules.authorization.authorization_request import USERINFO, requested_names, restrict_to_scopes
from app.rules.clients.client_coherence import signing_algorithm_for
from app.rules.clients.redirect_uris import PAIRWISE, find_sector
from app.rules.errors import Unauthenticated
from app.rules.identifiers import encode_uuid, public_id
from app.rules.tokens.claims import claims_for, left_half_hash


def subject_of(client: ClientSnapshot, user_id: UUID) -> str:
    """Return the ``sub`` of a user for a client. All its tokens and responses contain the same one.

    A ``pairwise`` client shares it only with the clients of its sector, whose change ends its tokens. It is derived
    from the organization's data key, which does not change when the master key that encrypts it does.
    """
    if client.document.get("subject_type") != PAIRWISE:
        return public_id("usr", user_id)
    key = keyring.derive_organization_key(client.organization.id, "pairwise subjects")
    # Section 8.1: sector, user and a secret. Neither sector nor user can contain the NUL.
    text = f"{find_sector(client.document)}\0{user_id}".encode()
    made = hmac.digest(key, text, hashlib.sha256)
    return f"pws_{encode_uuid(UUID(bytes=made[:16]))}"


class IdTokenDetails(Struct, frozen=True):
    """The contents of an ID token. ``nonce`` is None when none was sent.

    ``user_claims`` are those for its scopes, and those requested by name (OIDC Core 5.4, 5.5).
    """

    subject: str
    auth_time: datetime
    amr: str
    nonce: str | None
    session_id: UUID | None
    acr: str | None = None
    user_claims: Mapping[str, Any] = field(default_factory=dict)


def algorithm_of(client: ClientSnapshot) -> str:
    """Return the algorithm that the client registered, or its organization's."""
    chosen = client.document.get("id_token_signed_response_alg")
    return signing_algorithm_for(client.document, client.organization.settings, chosen)


def sign_id_token(
    client: ClientSnapshot, details: IdTokenDetails, *, access_token: str, now: datetime
) -> str:
    """Sign an ID token for the client.

    ``auth_time`` is always included, because some clients need it (OIDC Core section 2).
    """
    issued_at = int(now.timestamp())
    algorithm = algorithm_of(client)
    claims: dict[str, Any] = {
        # First, so that no claim of the profile can overwrite the claims below (OI-2).
        **details.user_claims,
        "iss": client.organization.issuer,
        "sub": details.subject,
        "aud": client.client_id,
        "exp": issued_at + client.organization.settings["oauth"]["id_token_ttl_seconds"],
        "iat": issued_at,
        "auth_time": int(details.auth_time.timestamp()),
        "amr": details.amr.split(),
        "at_hash": left_half_hash(access_token, algorithm),
    }
    if details.acr is not None:
        claims["acr"] = details.acr
    if details.nonce is not None:
        claims["nonce"] = details.nonce
    if details.session_id is not None:
        claims["sid"] = public_id("ses", details.session_id)
    return signing_keys.sign_jwt(client.organization, algorithm, claims, token_type="JWT")  # noqa: S106 - a header, no password


def find_user_token(token: str, *, organization_id: str | None) -> TokenSnapshot | None:
    """Return the valid access token of a user, with the user; ``organization_id`` narrows it to one organization."""
    token_snapshot = tokens.find_token(token, organization_id=organization_id, with_user=True)
    return None if token_snapshot is None or token_snapshot.user_id is None else token_snapshot


def claims_of(token_snapshot: TokenSnapshot) -> dict[str, Any]:
    """Return the user's claims that the token's scopes release (OIDC Core 5.4) or that were requested by name (5.5).

    Raises Unauthenticated for a token that is meant for another resource.
    """
    organization = token_snapshot.client.organization
    if organization.issuer not in token_snapshot.audience or token_snapshot.user_id is None:
        raise Unauthenticated("The access token is meant for another resource.")
    user = token_snapshot.user or get_user(organization.id, token_snapshot.user_id)
    # The client may have lost scopes since they were requested.
    named = restrict_to_scopes(token_snapshot.claims, token_snapshot.client.document["scopes"])
    claims = claims_for(user.claims, token_snapshot.scopes, requested_names(named, USERINFO))
    claims |= load_app_claims(token_snapshot.client, user.id, token_snapshot.scopes, USERINFO, user)
    # Last, so that nothing overwrites it. It is the same as in the client's ID tokens.
    claims["sub"] = subject_of(token_snapshot.client, token_snapshot.user_id)
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
