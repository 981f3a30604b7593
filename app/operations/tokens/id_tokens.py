"""ID tokens (OpenID Connect Core section 2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from app.operations.directory import ClientView
from app.operations.tokens import signing_keys
from app.rules.identifiers import public_id
from app.rules.registration.demands import algorithm_for
from app.rules.tokens.jwt import left_half_hash


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


def algorithm_of(client: ClientView) -> str:
    """The algorithm the client was registered with, or its organization's."""
    chosen = client.document.get("id_token_signed_response_alg")
    return algorithm_for(client.document, client.organization.settings, chosen)


def sign_id_token(client: ClientView, facts: Facts, *, access_token: str, now: datetime) -> str:
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
    return signing_keys.sign(client.organization, algorithm, claims, token_type="JWT")  # noqa: S106 - a header, no password
