"""Inspect a token for a developer: its kind, claims, signature, state and owner. Tokens are not stored."""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast
from uuid import UUID

from msgspec import Struct
from sqlalchemy import select

from app.extensions import db
from app.models.base import has_key, is_same
from app.models.grant import Grant
from app.models.token import AccessToken
from app.models.user import User
from app.operations.clients.client_records import ClientRecord, find_client_record
from app.operations.directory import lookups
from app.operations.directory.lookups import get_organization_by_id
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.grants import signing_keys
from app.operations.store import clock, keyring
from app.operations.store.transactions import read
from app.operations.tokens import introspection, tokens
from app.rules import jws
from app.rules.actor import Actor
from app.rules.errors import InvalidInput
from app.rules.identifiers import (
    ACCESS_TOKEN,
    KINDS,
    REFRESH_TOKEN,
    digest,
    has_valid_tag,
    parse_client_id,
    parse_public_id,
    parse_token,
    public_id,
)
from app.rules.languages.translation import TranslatableString, lazy_gettext
from app.rules.tokens.claims import left_half_hash

MAX_LENGTH = 20_000
VALID, REVOKED, EXPIRED, ENDED, REPLACED, UNKNOWN, FOREIGN = (
    "valid", "revoked", "expired", "ended", "replaced", "unknown", "foreign",
)  # fmt: skip
_ANY_TOKEN = lazy_gettext("a token")
ACCESS, REFRESH, ID_TOKEN, OTHER_JWT, MISTAKE = "access", "refresh", "id", "jwt", "mistake"
_PLAIN_JWT = "JWT"
# The typ header of JWT access tokens (RFC 9068 section 2.1).
_ACCESS_JWT = "at+jwt"


@dataclass(frozen=True, slots=True)
class Inspection:
    """A token as its reader may see it.

    ``state`` is one of the constants above, None for what has none. ``header`` and ``claims`` are those of a JWT,
    whether ``is_signed`` by the organization or not. ``name`` says what was pasted by mistake. Client, user and grant
    are None for a token whose client the reader may not see.
    """

    kind: str
    state: str | None = None
    name: str | None = None
    header: Mapping[str, Any] | None = None
    claims: Mapping[str, Any] | None = field(default=None, repr=False)
    is_signed: bool | None = None
    client: ClientRecord | None = None
    user_id: str | None = None
    user_email: str | None = None
    grant_id: str | None = None
    token_id: str | None = None
    scopes: tuple[str, ...] = ()
    audience: tuple[str, ...] = ()
    issued_at: datetime | None = None
    expires_at: datetime | None = None
    ended_at: datetime | None = None
    may_revoke: bool = False


@read
def inspect_token(actor: Actor, text: str) -> Inspection:
    """Return the kind, claims, state and owner of a token.

    With ``tokens:read:own``, the state is known only for tokens of the actor's own clients. Secrets and codes are named
    without a look-up. Raises InvalidInput for text that is not a token, and Forbidden.
    """
    actor.require_for_own("tokens:read")
    text = text.strip().removeprefix("Bearer ").strip()
    if not text or len(text) > MAX_LENGTH:
        raise InvalidInput("Paste one token.", field="token")
    parsed = parse_token(text)
    if parsed is None and text.startswith("gth_"):
        message = lazy_gettext(
            "This looks like %(kind)s that is incomplete or was changed. Copy it again.",
            kind=TranslatableString(KINDS.get(text[4:6], _ANY_TOKEN), {}),
        )
        raise InvalidInput(message, field="token")
    if parsed is not None and parsed.kind not in (ACCESS_TOKEN, REFRESH_TOKEN):
        return Inspection(MISTAKE, name=KINDS[parsed.kind])
    if parsed is None:
        return _inspect_jwt(actor, text)
    kind = ACCESS if parsed.kind == ACCESS_TOKEN else REFRESH
    if parsed.organization_id != actor.organization_id:
        return Inspection(kind, FOREIGN)
    found = (
        _find_access_token(actor, text)
        if kind == ACCESS
        else _find_refresh_token(actor, text, parsed.grant_id)
    )
    return found or Inspection(kind, UNKNOWN)


def _inspect_jwt(actor: Actor, text: str) -> Inspection:
    decoded = decode_jwt(text)
    if decoded is None:
        message = lazy_gettext("This is not a token. Paste an access token, a refresh token or an ID token.")
        if text.count(".") == 4:
            message = lazy_gettext(
                "This is an encrypted JWT (JWE). Only the one who has its key can read it."
            )
        raise InvalidInput(message, field="token")
    header, claims = decoded
    organization = get_organization_by_id(actor.organization_id)
    jwt: dict[str, Any] = {"header": header, "claims": claims}
    if claims.get("iss") != organization.issuer:
        return Inspection(_kind_of_jwt(header, claims), FOREIGN, **jwt)
    token_type = header.get("typ")
    jwt["is_signed"] = isinstance(token_type, str) and (
        signing_keys.read_jwt(organization.id, text, token_type=token_type) is not None
    )
    kind = _kind_of_jwt(header, claims)
    seconds = _seconds_left(claims.get("exp"))
    if kind == ACCESS and jwt["is_signed"]:
        absent = UNKNOWN if seconds is None or seconds > 0 else EXPIRED
        return _find_access_token(actor, text, **jwt) or Inspection(kind, absent, **jwt)
    state = None if not jwt["is_signed"] or seconds is None else VALID if seconds > 0 else EXPIRED
    client = _visible_client(actor, claims.get("aud")) if jwt["is_signed"] and kind == ID_TOKEN else None
    subject = claims.get("sub") if client is not None else None
    user_id = subject if isinstance(subject, str) and parse_public_id("usr", subject) else None
    return Inspection(kind, state, client=client, user_id=user_id, **jwt)


def _kind_of_jwt(header: Mapping[str, Any], claims: Mapping[str, Any]) -> str:
    if header.get("typ") == _ACCESS_JWT:
        return ACCESS
    return ID_TOKEN if "at_hash" in claims or "nonce" in claims else OTHER_JWT


def _find_access_token(actor: Actor, text: str, **jwt: Any) -> Inspection | None:
    """Return the token with its state if it is one of a client that the actor may see."""
    organization_id = actor.organization_id
    row = db.session.execute(
        select(AccessToken.__table__, Grant.user_id, Grant.revoked_at.label("grant_revoked_at"))
        .outerjoin(Grant, (Grant.organization_id == organization_id) & (Grant.id == AccessToken.grant_id))
        .where(AccessToken.organization_id == organization_id, AccessToken.digest == digest(text))
    ).first()
    unstored = tokens.read_unstored_rows(organization_id, text) if row is None and jwt else None
    if row is None and unstored is None:
        return None
    found: Mapping[str, Any] = unstored.token if unstored is not None else cast(Any, row)._mapping
    ended_at = found.get("revoked_at") or found.get("grant_revoked_at")
    state = REVOKED if ended_at else EXPIRED if found["expires_at"] <= clock.now() else None
    return _with_owner(
        actor, text, ACCESS, state,
        client_id=found["client_id"],
        grant_id=found["grant_id"],
        token_id=public_id("tok", found["id"]),
        scopes=tuple(found["scope"].split()),
        audience=tuple(found["audience"].split()),
        issued_at=found["issued_at"],
        expires_at=found["expires_at"],
        ended_at=ended_at,
        **jwt,
    )  # fmt: skip


def _find_refresh_token(actor: Actor, text: str, grant_id: UUID | None) -> Inspection | None:
    if grant_id is None or not has_valid_tag(text, keyring.refresh_tag_key(actor.organization_id)):
        return None
    row = db.session.get(Grant, (actor.organization_id, grant_id))
    if row is None:
        return None
    is_current = row.refresh_digest is not None and hmac.compare_digest(row.refresh_digest, digest(text))
    state = REVOKED if row.revoked_at else None if is_current else REPLACED
    expires_at = row.idle_expires_at or row.expires_at
    if state is None and expires_at <= clock.now():
        state = EXPIRED
    return _with_owner(
        actor, text, REFRESH, state,
        client_id=row.client_id,
        grant_id=grant_id,
        scopes=tuple(row.scope.split()),
        issued_at=(row.rotated_at or row.created_at) if is_current else None,
        expires_at=expires_at,
        ended_at=row.revoked_at,
    )  # fmt: skip


def _with_owner(
    actor: Actor,
    text: str,
    kind: str,
    state: str | None,
    *,
    client_id: UUID,
    grant_id: UUID | None,
    **values: Any,
) -> Inspection | None:
    client = find_client_record(actor.organization_id, client_id)
    if client is None or not actor.has_permission("tokens:read", owner_id=client.owner_id):
        return None
    snapshot = lookups.find_client_by_id(actor.organization_id, client_id, fresh=True)
    if state is None:
        # The decision and the expiry of the introspection endpoint: lifetimes may have been shortened.
        active = None if snapshot is None else introspection.find_active(snapshot, text)
        state = ENDED if active is None else VALID
        values |= {} if active is None else {"expires_at": active.expires_at}
    user = None
    if grant_id is not None:
        user = db.session.execute(
            select(User.id, User.email)
            .join(Grant, is_same(Grant.user_id, User.id))
            .where(has_key(Grant, actor.organization_id, grant_id))
        ).first()
    may_revoke = actor.has_permission("tokens:revoke", owner_id=client.owner_id)
    return Inspection(
        kind,
        state,
        client=client,
        user_id=None if user is None else public_id("usr", user.id),
        user_email=None if user is None else user.email,
        grant_id=None if grant_id is None else public_id("grt", grant_id),
        may_revoke=may_revoke and state in (VALID, REPLACED),
        **values,
    )


def _visible_client(actor: Actor, client_id: Any) -> ClientRecord | None:
    parsed = parse_client_id(client_id) if isinstance(client_id, str) else None
    if parsed is None or parsed[0] != actor.organization_id:
        return None
    client = find_client_record(*parsed)
    is_visible = client is not None and actor.has_permission("tokens:read", owner_id=client.owner_id)
    return client if is_visible else None


class Check(Struct, frozen=True):
    """One check of a token: what was checked, whether it passed, and the value as text."""

    name: str
    holds: bool
    detail: str


def check_id_token(
    organization: OrganizationSnapshot, id_token: str, *, client_id: str, nonce: str | None, access_token: str
) -> list[Check]:
    """Check an ID token as its client must (OIDC Core section 3.1.3.7); ``nonce`` is None where none was sent."""
    header, unverified = decode_jwt(id_token) or ({}, {})
    claims = signing_keys.read_jwt(organization.id, id_token, token_type=_PLAIN_JWT)
    found = unverified if claims is None else claims
    audience = found.get("aud")
    expires_in = _seconds_left(found.get("exp"))
    at_hash = left_half_hash(access_token, str(header.get("alg")))
    checks = [
        Check("Signature", claims is not None, f"{header.get('alg')} with the key {header.get('kid')}"),
        Check("iss", found.get("iss") == organization.issuer, str(found.get("iss"))),
        Check("aud", audience == client_id, str(audience)),
        Check("exp", expires_in is not None and expires_in > 0, f"in {expires_in} seconds"),
        Check(
            "at_hash", hmac.compare_digest(str(found.get("at_hash")), at_hash), "belongs to the access token"
        ),
    ]
    if nonce is not None:
        checks.append(Check("nonce", found.get("nonce") == nonce, "the one that was sent"))
    return checks


def decode_jwt(text: str) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return header and claims of a signed JWT, unverified, or None if it is none."""
    parts = text.split(".")
    if len(parts) != 3 or not text.isascii():
        return None
    header, claims = jws.read_part(parts[0]), jws.read_part(parts[1])
    if header is None or claims is None:
        return None
    try:
        # JSON can contain half of a surrogate pair, which no page can show.
        json.dumps([header, claims], ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return header, claims


def _seconds_left(value: Any) -> int | None:
    try:
        return int(value - clock.now().timestamp()) if isinstance(value, (int, float)) else None
    except (OverflowError, ValueError):
        # Python reads Infinity and NaN from JSON.
        return None
