"""Revocation: of one token, or of all that hangs from a user, a client or a secret.

After the COMMIT the string is dead on every worker, because finding a token asks for everything it rests on. There
is no list of revoked tokens to spread and none that can be late.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import or_, select, update

from app.extensions import db
from app.models.client import Client
from app.models.device import DeviceCode
from app.models.grant import AuthorizationCode, Grant
from app.models.token import AccessToken
from app.operations import audit, clock, keyring
from app.operations.grants import grants
from app.operations.tokens import tokens
from app.operations.transaction import count_changed, transaction
from app.rules.actor import Actor
from app.rules.errors import InvalidInput
from app.rules.identifiers import client_id_of, public_id
from app.rules.tokens.tokens import REFRESH_TOKEN, digest, has_own_tag, parse_token


@dataclass(frozen=True, slots=True)
class RevokedToken:
    """A token that lived until now: its kind and public id, whose it was."""

    kind: str
    public_id: str
    client_id: UUID
    user_id: UUID | None


@transaction
def revoke_token(actor: Actor, token: str) -> RevokedToken | None:
    """This organization never accepts the string again (RFC 7009 section 2); returns what ended just now.

    Unknown, ended, revoked and other organizations' strings change nothing and raise nothing. A refresh token
    takes its family and their access tokens with it, an access token goes alone. Whoever lacks
    ``tokens:revoke`` may name tokens of its own client only: InvalidInput otherwise. The kind is read from the
    string itself, so a wrong hint leaves nothing alive. Audit: ``token.revoked``, once.
    """
    parsed = parse_token(token)
    if parsed is not None and parsed.kind == REFRESH_TOKEN and parsed.grant_id is not None:
        if parsed.organization_id == actor.organization_id:
            return _revoke_family(actor, token, parsed.grant_id)
    elif tokens.owner_of(token) == actor.organization_id:
        return _revoke_access_token(actor, token)
    return None


def _revoke_family(actor: Actor, token: str, grant_id: UUID) -> RevokedToken | None:
    if not has_own_tag(token, keyring.refresh_tag_key(actor.organization_id)):
        return None
    row = db.session.execute(
        select(Grant.client_id, Grant.user_id).where(
            Grant.organization_id == actor.organization_id, Grant.id == grant_id
        )
    ).first()
    if row is None:
        return None
    _require_own(actor, row.client_id)
    if not grants.revoke(actor, grant_id, reason="revoked"):
        return None
    return _record(
        actor, RevokedToken("refresh_token", public_id("grt", grant_id), row.client_id, row.user_id)
    )


def _revoke_access_token(actor: Actor, token: str) -> RevokedToken | None:
    row = db.session.execute(
        select(AccessToken.id, AccessToken.client_id, Grant.user_id)
        .outerjoin(
            Grant,
            (Grant.organization_id == AccessToken.organization_id) & (Grant.id == AccessToken.grant_id),
        )
        .where(AccessToken.organization_id == actor.organization_id, AccessToken.digest == digest(token))
    ).first()
    if row is None:
        return None
    _require_own(actor, row.client_id)
    return end_access_token(actor, row.id, row.client_id, row.user_id)


def end_access_token(
    actor: Actor, token_id: UUID, client_id: UUID, user_id: UUID | None = None
) -> RevokedToken | None:
    """The access token is dead; None when it had ended already. Part of the transaction under way.

    The caller has found out that the actor may end it. Audit: ``token.revoked``.
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
    return _record(actor, RevokedToken("access_token", public_id("tok", token_id), client_id, user_id))


def _require_own(actor: Actor, client_id: UUID) -> None:
    if actor.client_id == client_id or actor.may("tokens:revoke"):
        return
    owner = db.session.scalar(
        select(Client.created_by_user_id).where(
            Client.organization_id == actor.organization_id, Client.id == client_id
        )
    )
    if not actor.may("tokens:revoke", owner_id=owner):
        raise InvalidInput("The token was not issued to this client.", field="token")


def _record(actor: Actor, revoked: RevokedToken) -> RevokedToken:
    audit.record(
        actor,
        "token.revoked",
        target_type=revoked.kind,
        target_id=revoked.public_id,
        after={"client_id": client_id_of(actor.organization_id, revoked.client_id)},
    )
    return revoked


def end_grants(actor: Actor, condition: Any, *, reason: str) -> int:
    """Every living grant of the actor's organization that meets the condition is revoked; returns how many.

    Part of the transaction under way. One statement and no row count to trust: tokens ask their grant.
    """
    now = clock.now()
    return count_changed(
        update(Grant)
        .where(Grant.organization_id == actor.organization_id, Grant.revoked_at.is_(None), condition)
        .values(revoked_at=now, revoked_reason=reason, sealed_answer=None)
    )


@transaction
def revoke_grants_of_user(actor: Actor, user_id: UUID, *, reason: str) -> int:
    """Every app loses what the user allowed it, codes included; returns how many grants ended."""
    _end_codes(actor, "user_id", user_id)
    ended = end_grants(actor, Grant.user_id == user_id, reason=reason)
    grants.log_revocation(actor.organization_id, "user", user_id.bytes)
    return ended


@transaction
def revoke_grants_elsewhere(actor: Actor, user_id: UUID, *, reason: str) -> int:
    """As ``revoke_grants_of_user``, but for what was allowed in the actor's own sign-in; returns how many ended."""
    _end_codes(actor, "user_id", user_id)
    elsewhere = (
        (Grant.organization_id == actor.organization_id)
        & (Grant.user_id == user_id)
        & Grant.revoked_at.is_(None)
        & or_(Grant.session_id.is_(None), Grant.session_id != actor.session_id)
    )
    ids = db.session.scalars(select(Grant.id).where(elsewhere)).all()
    for grant_id in ids:
        grants.log_revocation(actor.organization_id, "grant", grant_id.bytes)
    return end_grants(actor, Grant.id.in_(ids), reason=reason) if ids else 0


@transaction
def revoke_grants_of_client(actor: Actor, client_id: UUID, *, reason: str) -> int:
    """Nobody's permission for the client stands any more; returns how many grants ended."""
    _end_codes(actor, "client_id", client_id)
    ended = end_grants(actor, Grant.client_id == client_id, reason=reason)
    grants.log_revocation(actor.organization_id, "client", client_id.bytes)
    return ended


def _end_codes(actor: Actor, column: str, value: UUID) -> None:
    now = clock.now()
    for model in (AuthorizationCode, DeviceCode):
        db.session.execute(
            update(model)
            .where(
                model.organization_id == actor.organization_id,
                model.used_at.is_(None),
                model.expires_at > now,
                getattr(model, column) == value,
            )
            .values(expires_at=now)
        )
