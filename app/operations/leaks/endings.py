"""Endings: how a leaked string of each kind dies. Whoever holds it may end it, and nothing but it.

No rule that protects people from locking themselves out stands in the way: a secret that the world knows is no way in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sqlalchemy import delete, select, update

from app.extensions import db
from app.models.account_link import AccountLink
from app.models.client import Client
from app.models.credential import Credential
from app.models.device import DeviceCode
from app.models.grant import AuthorizationCode, AuthorizationRequest
from app.models.pushed_request import PushedRequest
from app.models.registration import ClientRegistration, RegistrationToken
from app.models.second_factor import PendingSignIn
from app.models.session import KnownBrowser, Session
from app.models.user import Invitation
from app.operations import clock
from app.operations.people.sessions import end_sessions
from app.operations.registration.credential_ends import revoke_at_once
from app.operations.tokens.revocation import revoke_token
from app.operations.transaction import count_changed
from app.rules.actor import Actor
from app.rules.errors import NotFound
from app.rules.identifiers import client_id_of, public_id
from app.rules.languages.sentences import sentence
from app.rules.tokens import tokens
from app.rules.tokens.tokens import digest


@dataclass(frozen=True, slots=True)
class Ended:
    """What died: in words, what the audit log calls it, and whose it was.

    ``follow_up`` are client secrets whose grants ``credential_ends.end_grants_of`` ends afterwards; a process that
    dies before leaves it to the outbox.
    """

    words: str
    target_type: str
    target_id: str | None = None
    client_id: UUID | None = None
    user_id: UUID | None = None
    follow_up: tuple[UUID, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


def end(actor: Actor, kind: str, token: str) -> Ended | None:
    """The string counts for nothing any more; None when it did not before. Part of the unit that audits it."""
    ending = _ENDINGS.get(kind)
    return None if ending is None else ending(actor, token)


def _client_secret(actor: Actor, token: str) -> Ended | None:
    row = db.session.execute(
        select(Credential.id, Credential.client_id, Credential.name).where(
            Credential.organization_id == actor.organization_id, Credential.digest == digest(token)
        )
    ).first()
    if row is None:
        return None
    client_id, secret = client_id_of(actor.organization_id, row.client_id), public_id("sec", row.id)
    try:
        # Whoever had the secret may have minted tokens with it: they go as well.
        counts, flagged = revoke_at_once(actor, client_id, credential_id=secret, revoke_tokens=True)
    except NotFound:
        return None
    if not counts.credentials and not flagged:
        return None
    facts = {"client_id": client_id, "name": row.name}
    return Ended(
        sentence("A client secret"), "credential", secret, row.client_id, None, tuple(flagged), facts
    )


def _token(actor: Actor, token: str) -> Ended | None:
    revoked = revoke_token(actor, token)
    if revoked is None:
        return None
    words = sentence("A refresh token") if revoked.kind == "refresh_token" else sentence("An access token")
    facts = {"client_id": client_id_of(actor.organization_id, revoked.client_id)}
    return Ended(words, revoked.kind, revoked.public_id, revoked.client_id, revoked.user_id, facts=facts)


def _session(actor: Actor, token: str) -> Ended | None:
    mine = (Session.organization_id == actor.organization_id) & (Session.digest == digest(token))
    row = db.session.execute(select(Session.id, Session.user_id).where(mine)).first()
    if row is None or not end_sessions(actor.organization_id, Session.id == row.id):
        return None
    return Ended(
        sentence("The cookie of a sign-in"), "session", public_id("ses", row.id), user_id=row.user_id
    )


def _initial_access(actor: Actor, token: str) -> Ended | None:
    mine = (
        (RegistrationToken.organization_id == actor.organization_id)
        & (RegistrationToken.digest == digest(token))
        & RegistrationToken.revoked_at.is_(None)
    )
    row_id = db.session.scalar(select(RegistrationToken.id).where(mine))
    if count_changed(update(RegistrationToken).where(mine).values(revoked_at=clock.now())) != 1:
        return None
    target = None if row_id is None else public_id("ria", row_id)
    return Ended(sentence("An initial access token"), "registration_token", target)


def _registration_access(actor: Actor, token: str) -> Ended | None:
    row_id = db.session.scalar(
        select(ClientRegistration.id).where(
            ClientRegistration.organization_id == actor.organization_id,
            ClientRegistration.access_digest == digest(token),
        )
    )
    if row_id is None:
        return None
    changed = count_changed(
        update(ClientRegistration)
        .where(
            ClientRegistration.organization_id == actor.organization_id,
            ClientRegistration.id == row_id,
            ClientRegistration.access_digest == digest(token),
        )
        .values(access_digest=None)
    )
    target = client_id_of(actor.organization_id, row_id)
    words = sentence("The registration access token of a client")
    return Ended(words, "client", target, row_id, facts={"client_id": target}) if changed == 1 else None


def _invitation(actor: Actor, token: str) -> Ended | None:
    mine = (
        (Invitation.organization_id == actor.organization_id)
        & (Invitation.digest == digest(token))
        & Invitation.used_at.is_(None)
        & Invitation.revoked_at.is_(None)
        & (Invitation.expires_at > clock.now())
    )
    row_id = db.session.scalar(select(Invitation.id).where(mine))
    if count_changed(update(Invitation).where(mine).values(revoked_at=clock.now())) != 1:
        return None
    target = None if row_id is None else public_id("inv", row_id)
    return Ended(sentence("The link of an invitation"), "invitation", target)


def _account_link(actor: Actor, token: str) -> Ended | None:
    mine = (
        (AccountLink.organization_id == actor.organization_id)
        & (AccountLink.digest == digest(token))
        & (AccountLink.expires_at > clock.now())
    )
    user_id = db.session.scalar(select(AccountLink.user_id).where(mine))
    if user_id is None or count_changed(delete(AccountLink).where(mine)) != 1:
        return None
    return Ended(sentence("A link to an account"), "user", public_id("usr", user_id), user_id=user_id)


def _known_browser(actor: Actor, token: str) -> Ended | None:
    mine = (KnownBrowser.organization_id == actor.organization_id) & (KnownBrowser.digest == digest(token))
    user_id = db.session.scalar(select(KnownBrowser.user_id).where(mine))
    if user_id is None or count_changed(delete(KnownBrowser).where(mine)) != 1:
        return None
    return Ended(
        sentence("The cookie of a known browser"), "user", public_id("usr", user_id), user_id=user_id
    )


def _passing(model: Any, words: str, target_type: str) -> Callable[[Actor, str], Ended | None]:
    """What lives for minutes ends now."""

    def act(actor: Actor, token: str) -> Ended | None:
        now = clock.now()
        ended = count_changed(
            update(model)
            .where(
                model.organization_id == actor.organization_id,
                model.digest == digest(token),
                model.expires_at > now,
            )
            .values(expires_at=now)
        )
        return Ended(words, target_type) if ended == 1 else None

    return act


_ENDINGS: Mapping[str, Callable[[Actor, str], Ended | None]] = {
    tokens.CLIENT_SECRET: _client_secret,
    tokens.ACCESS_TOKEN: _token,
    tokens.REFRESH_TOKEN: _token,
    tokens.SESSION: _session,
    tokens.INITIAL_ACCESS: _initial_access,
    tokens.REGISTRATION_ACCESS: _registration_access,
    tokens.INVITATION: _invitation,
    tokens.PASSWORD_RESET: _account_link,
    tokens.EMAIL_PROOF: _account_link,
    tokens.KNOWN_BROWSER: _known_browser,
    tokens.AUTHORIZATION_CODE: _passing(
        AuthorizationCode, sentence("An authorization code"), "authorization_code"
    ),
    tokens.DEVICE_CODE: _passing(DeviceCode, sentence("A device code"), "device_code"),
    tokens.AUTHORIZATION_REQUEST: _passing(
        AuthorizationRequest, sentence("A request for authorization"), "authorization_request"
    ),
    tokens.PUSHED_REQUEST: _passing(PushedRequest, sentence("A pushed request"), "pushed_request"),
    tokens.PENDING_SIGN_IN: _passing(PendingSignIn, sentence("A sign-in under way"), "pending_sign_in"),
}
KINDS = frozenset(_ENDINGS) | {tokens.SETUP}


def creator_of(organization_id: str, client_id: UUID) -> UUID | None:
    """The user who registered the client."""
    return db.session.scalar(
        select(Client.created_by_user_id).where(
            Client.organization_id == organization_id, Client.id == client_id
        )
    )
