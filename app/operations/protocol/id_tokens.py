"""ID tokens (OpenID Connect Core section 2)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from app.operations.directory import ClientView
from app.operations.protocol import signing_keys
from app.rules.identifiers import public_id
from app.rules.protocol.jwt import left_half_hash
from app.rules.registration.demands import algorithm_for


@dataclass(frozen=True, slots=True)
class Facts:
    """What an ID token says of a sign-in. ``nonce`` is None when none was sent."""

    subject: str
    auth_time: datetime
    amr: str
    nonce: str | None
    session_id: UUID | None
    send_auth_time: bool


def algorithm_of(client: ClientView) -> str:
    """The algorithm the client was registered with, or its organization's."""
    chosen = client.document.get("id_token_signed_response_alg")
    return algorithm_for(client.document, client.organization.settings, chosen)


def sign_id_token(client: ClientView, facts: Facts, *, access_token: str, now: datetime) -> str:
    """A signed ID token for the client. Profile claims are userinfo's; this says who signed in, when and how."""
    issued_at = int(now.timestamp())
    algorithm = algorithm_of(client)
    claims: dict[str, Any] = {
        "iss": client.organization.issuer,
        "sub": facts.subject,
        "aud": client.client_id,
        "exp": issued_at + client.organization.settings["oauth"]["id_token_ttl_seconds"],
        "iat": issued_at,
        "auth_time": int(facts.auth_time.timestamp()),
        "amr": facts.amr.split(),
        "at_hash": left_half_hash(access_token, algorithm),
    }
    if facts.nonce is not None:
        claims["nonce"] = facts.nonce
    if facts.session_id is not None:
        claims["sid"] = public_id("ses", facts.session_id)
    return signing_keys.sign(client.organization, algorithm, claims, token_type="JWT")  # noqa: S106 - a header, no password
