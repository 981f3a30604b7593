"""Revocation of single tokens (RFC 7009).

A revoked token is rejected by every worker from the COMMIT on, because validating a token reads its row and the state
of everything that it depends on. There is no list of revoked tokens to distribute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import select, update

from app.extensions import db
from app.models.client import Client
from app.models.grant import Grant
from app.models.token import AccessToken
from app.operations.directory.lookups import ClientSnapshot
from app.operations.grants import grants
from app.operations.sign_in.actor_access import enter_organization
from app.operations.store import audit, clock, keyring
from app.operations.store.transactions import count_changed, transaction
from app.operations.tokens import tokens
from app.rules.actor import Actor
from app.rules.errors import InvalidInput, NotFound
from app.rules.identifiers import format_client_id, public_id
from app.rules.token_values import REFRESH_TOKEN, digest, has_valid_tag, parse_token
from app.rules.tokens.revocation import revocation_request

ACCESS, REFRESH = "access_token", "refresh_token"


@dataclass(frozen=True, slots=True)
class RevokedToken:
    """A token that was valid until it was revoked."""

    kind: str
    public_id: str
    client_id: UUID
    user_id: UUID | None


@dataclass(frozen=True, slots=True)
class RevocableToken:
    """A stored token, whether it is still valid or not; ``id`` is its own or, for a refresh token, its grant's."""

    kind: str
    id: UUID
    client_id: UUID
    user_id: UUID | None


@transaction
def revoke_token(actor: Actor, token: str) -> RevokedToken | None:
    """Revoke a token of the actor's organization; return what was valid until now (RFC 7009 section 2).

    Unknown, expired, revoked and other organizations' tokens change nothing and raise nothing. An actor without
    ``tokens:revoke`` may name only tokens of its own client: InvalidInput otherwise. Audit: ``token.revoked``, once.
    """
    found = find_token(actor, token)
    if found is None:
        return None
    _require_own(actor, found.client_id)
    return revoke_found(actor, found)


def find_token(actor: Actor, token: str) -> RevocableToken | None:
    """Return the stored token of the actor's organization. The string itself tells its kind (RV-3)."""
    parsed = parse_token(token)
    if parsed is not None and parsed.kind == REFRESH_TOKEN and parsed.grant_id is not None:
        if parsed.organization_id == actor.organization_id:
            return _find_family(actor, token, parsed.grant_id)
    elif tokens.owner_of(token) == actor.organization_id:
        return _find_access_token(actor, token)
    return None


def revoke_found(actor: Actor, found: RevocableToken) -> RevokedToken | None:
    """Revoke the token in the current transaction, a refresh token with its grant; None if it was not valid.

    The caller has checked that the actor may revoke it. Audit: ``token.revoked``.
    """
    if found.kind == ACCESS:
        return revoke_access_token(actor, found.id, found.client_id, found.user_id)
    if not grants.revoke_grant_by_id(actor, found.id, reason="revoked"):
        return None
    return _record(
        actor, RevokedToken(found.kind, public_id("grt", found.id), found.client_id, found.user_id)
    )


def _find_family(actor: Actor, token: str, grant_id: UUID) -> RevocableToken | None:
    if not has_valid_tag(token, keyring.refresh_tag_key(actor.organization_id)):
        return None
    row = db.session.execute(
        select(Grant.client_id, Grant.user_id).where(
            Grant.organization_id == actor.organization_id, Grant.id == grant_id
        )
    ).first()
    return None if row is None else RevocableToken(REFRESH, grant_id, row.client_id, row.user_id)


def _find_access_token(actor: Actor, token: str) -> RevocableToken | None:
    row = db.session.execute(
        select(AccessToken.id, AccessToken.client_id, Grant.user_id)
        .outerjoin(
            Grant,
            (Grant.organization_id == AccessToken.organization_id) & (Grant.id == AccessToken.grant_id),
        )
        .where(AccessToken.organization_id == actor.organization_id, AccessToken.digest == digest(token))
    ).first()
    return None if row is None else RevocableToken(ACCESS, row.id, row.client_id, row.user_id)


def revoke_access_token(
    actor: Actor, token_id: UUID, client_id: UUID, user_id: UUID | None = None
) -> RevokedToken | None:
    """Revoke the access token in the current transaction; return None if it was not valid.

    The caller has checked that the actor may revoke it. Audit: ``token.revoked``.
    """
    changed = count_changed(
        update(AccessToken)
        .where(
            AccessToken.organization_id == actor.organization_id,
            AccessToken.id == token_id,
            AccessToken.revoked_at.is_(None),
            AccessToken.expires_at > clock.now(),
        )
        .values(revoked_at=clock.now())
    )
    if changed != 1:
        return None
    grants.log_revocation(actor.organization_id, "token", token_id.bytes)
    return _record(actor, RevokedToken(ACCESS, public_id("tok", token_id), client_id, user_id))


def _require_own(actor: Actor, client_id: UUID) -> None:
    if actor.client_id == client_id or actor.has_permission("tokens:revoke"):
        return
    owner = db.session.scalar(
        select(Client.created_by_user_id).where(
            Client.organization_id == actor.organization_id, Client.id == client_id
        )
    )
    if not actor.has_permission("tokens:revoke", owner_id=owner):
        raise InvalidInput("The token was not issued to this client.", field="token")


def _record(actor: Actor, revoked: RevokedToken) -> RevokedToken:
    audit.record(
        actor,
        "token.revoked",
        target_type=revoked.kind,
        target_id=revoked.public_id,
        after={"client_id": format_client_id(actor.organization_id, revoked.client_id)},
    )
    return revoked


def revoke_by_request(actor: Actor, fields: Mapping[str, Any], *, client: ClientSnapshot | None) -> None:
    """Revoke the token in the body of a request. An unknown token changes nothing and raises nothing.

    ``client`` is set if a client authenticated with its secret. It may revoke its own tokens; all other callers need
    ``tokens:revoke``. Raises Forbidden, and InvalidInput with every invalid field. Another organization gets the same
    error as one that does not exist (RV-1). Audit: ``token.revoked``, once.
    """
    if client is None:
        actor.require_for_own("tokens:revoke")
    request = revocation_request(fields)
    try:
        scoped_actor, _ = enter_organization(actor, request.organization_id)
    except NotFound as unknown:
        words = "There is no such organization." if actor.is_root else "This is not your organization."
        raise InvalidInput(words, field="organization_id", code="unknown_organization") from unknown
    revoke_token(scoped_actor, request.token)
