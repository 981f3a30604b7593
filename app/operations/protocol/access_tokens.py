"""The values of access tokens, opaque or JWT (RFC 9068), and the row that each leaves."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from app.config import current
from app.operations.directory import ClientView
from app.operations.protocol import signing_keys
from app.rules.identifiers import new_id, public_id
from app.rules.people.permissions import EVERY_PERMISSION
from app.rules.protocol.tokens import ACCESS_TOKEN, digest, new_token
from app.rules.registration.demands import algorithm_for

JWT = "jwt"
BEARER, DPOP = "Bearer", "DPoP"
LONGEST_JWT = 8192


@dataclass(frozen=True, slots=True)
class MadeToken:
    """A fresh access token: its value, its life in seconds, and the columns of its row."""

    value: str
    expires_in: int
    row: dict[str, Any]

    @property
    def token_type(self) -> str:
        """How it is presented (RFC 6750, RFC 9449 section 5)."""
        return BEARER if self.row["dpop_jkt"] is None else DPOP


def make(
    client: ClientView,
    scopes: Sequence[str],
    *,
    now: datetime,
    subject: str,
    resources: Sequence[str] = (),
    auth_time: datetime | None = None,
    acr: str | None = None,
    dpop_jkt: str | None = None,
    act: dict[str, Any] | None = None,
) -> MadeToken:
    """A fresh access token of the client for ``subject``; nothing is stored yet.

    ``resources`` are those asked for (RFC 8707), ``dpop_jkt`` the key it is bound to, ``act`` who acts for the subject.
    """
    expires_in = seconds_of_life(client)
    token_id = new_id()
    scope = " ".join(scopes)
    audience = audience_of(client, scopes, resources)
    if is_jwt(client):
        more: dict[str, Any] = {"acr": acr, "act": act}
        if auth_time is not None:
            more["auth_time"] = int(auth_time.timestamp())
        if dpop_jkt is not None:
            more["cnf"] = {"jkt": dpop_jkt}
        value = _signed(client, public_id("tok", token_id), scope, audience, subject, now, expires_in, more)
    else:
        value = new_token(ACCESS_TOKEN, client.organization.id)
    row = {
        "id": token_id,
        "digest": digest(value),
        "scope": scope,
        "audience": " ".join(audience),
        "dpop_jkt": dpop_jkt,
        "act": act,
        "issued_at": now,
        "expires_at": now + timedelta(seconds=expires_in),
    }
    return MadeToken(value, expires_in, row)


def management_audience() -> str:
    """The resource indicator of the management API."""
    config = current()
    return f"{config.base_url}/management"


def audience_of(client: ClientView, scopes: Sequence[str], asked: Sequence[str] = ()) -> tuple[str, ...]:
    """Whom the token is for: the management API for its scopes, the client's resources or the issuer for others.

    ``asked`` are the resources that were asked for; without any they are the client's default ones.
    """
    management = [management_audience()] if any(scope in EVERY_PERMISSION for scope in scopes) else []
    if management and all(scope in EVERY_PERMISSION for scope in scopes):
        return tuple(management)
    resources = list(asked or client.document.get("resources") or ())
    # userinfo is the issuer's own resource, whatever else the token is for.
    own = [client.organization.issuer] if "openid" in scopes or not resources else []
    return tuple(management + resources + own)


def is_jwt(client: ClientView) -> bool:
    """Whether the client gets JWT access tokens: its own choice, or its organization's."""
    chosen = (
        client.document.get("access_token_format")
        or client.organization.settings["oauth"]["access_token"]["format"]
    )
    return bool(chosen == JWT)


def seconds_of_life(client: ClientView) -> int:
    """Seconds that an access token of the client lives, by its organization's settings."""
    settings = client.organization.settings["oauth"]["access_token"]
    return int(settings["jwt_ttl_seconds"] if is_jwt(client) else settings["ttl_seconds"])


def claimed_client(token: str) -> str | None:
    """The ``client_id`` that a JWT names, unverified: it only says where to look for the token's row."""
    if len(token) > LONGEST_JWT or token.count(".") != 2:
        return None
    payload = token.split(".")[1]
    try:
        claims = json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (ValueError, RecursionError):
        return None
    client_id = claims.get("client_id") if isinstance(claims, dict) else None
    return client_id if isinstance(client_id, str) else None


def _signed(
    client: ClientView,
    token_id: str,
    scope: str,
    audience: tuple[str, ...],
    subject: str,
    now: datetime,
    expires_in: int,
    more: dict[str, Any],
) -> str:
    issued_at = int(now.timestamp())
    claims: dict[str, Any] = {
        "iss": client.organization.issuer,
        "sub": subject,
        "aud": audience[0] if len(audience) == 1 else list(audience),
        "exp": issued_at + expires_in,
        "iat": issued_at,
        "jti": token_id,
        "client_id": client.client_id,
        "scope": scope,
        "organization_id": client.organization.slug,
    }
    claims |= {name: value for name, value in more.items() if value is not None}
    algorithm = algorithm_for(client.document, client.organization.settings)
    return signing_keys.sign(client.organization, algorithm, claims, token_type="at+jwt")  # noqa: S106
