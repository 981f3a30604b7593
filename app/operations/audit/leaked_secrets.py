"""Endings: how a leaked string of each kind dies. Whoever holds it may end it, and nothing but it.

No rule that protects people from locking themselves out stands in the way: a secret that the world knows is no way in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from sqlalchemy import delete, select, update

from app.extensions import db
from app.models.client import Client, ClientRegistration, RegistrationToken
from app.models.credential import Credential
from app.models.grant import AuthorizationCode, AuthorizationRequest
from app.models.second_factor import PendingSignIn
from app.models.session import KnownBrowser, Session
from app.models.token import DeviceCode, PushedRequest
from app.models.user import AccountLink, Invitation
from app.operations.clients.credential_revocation import end_grants_of, revoke_at_once
from app.operations.directory.lookups import (
    OrganizationSnapshot,
    get_root_organization,
    get_unpurged_organization,
)
from app.operations.directory.users import get_user
from app.operations.mail import letters
from app.operations.mail.to_administrators import addresses_of_administrators
from app.operations.organizations.setup import revoke_setup_token
from app.operations.sign_in.sessions import end_sessions
from app.operations.store import audit, clock, rate_limits
from app.operations.store.rate_limits import bucket_key, network_limits
from app.operations.store.transactions import count_changed, transaction
from app.operations.tokens import tokens as living_tokens
from app.operations.tokens.revocation import revoke_token
from app.rules import token_values
from app.rules.actor import Actor
from app.rules.audit.leaked_secrets import LeakReport, read_reports
from app.rules.errors import NotFound
from app.rules.identifiers import format_client_id, public_id
from app.rules.languages.sentences import sentence
from app.rules.sign_in.lockout import Lockout
from app.rules.token_values import ACCESS_TOKEN, SETUP, digest, parse_token


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
    client_id, secret = format_client_id(actor.organization_id, row.client_id), public_id("sec", row.id)
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
    facts = {"client_id": format_client_id(actor.organization_id, revoked.client_id)}
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
    target = format_client_id(actor.organization_id, row_id)
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
    token_values.CLIENT_SECRET: _client_secret,
    token_values.ACCESS_TOKEN: _token,
    token_values.REFRESH_TOKEN: _token,
    token_values.SESSION: _session,
    token_values.INITIAL_ACCESS: _initial_access,
    token_values.REGISTRATION_ACCESS: _registration_access,
    token_values.INVITATION: _invitation,
    token_values.PASSWORD_RESET: _account_link,
    token_values.EMAIL_VERIFICATION: _account_link,
    token_values.KNOWN_BROWSER: _known_browser,
    token_values.AUTHORIZATION_CODE: _passing(
        AuthorizationCode, sentence("An authorization code"), "authorization_code"
    ),
    token_values.DEVICE_CODE: _passing(DeviceCode, sentence("A device code"), "device_code"),
    token_values.AUTHORIZATION_REQUEST: _passing(
        AuthorizationRequest, sentence("A request for authorization"), "authorization_request"
    ),
    token_values.PUSHED_REQUEST: _passing(PushedRequest, sentence("A pushed request"), "pushed_request"),
    token_values.PENDING_SIGN_IN: _passing(PendingSignIn, sentence("A sign-in under way"), "pending_sign_in"),
}
KINDS = frozenset(_ENDINGS) | {token_values.SETUP}


def creator_of(organization_id: str, client_id: UUID) -> UUID | None:
    """The user who registered the client."""
    return db.session.scalar(
        select(Client.created_by_user_id).where(
            Client.organization_id == organization_id, Client.id == client_id
        )
    )


LABEL = "leak report"
ACTION = "secret.leak_reported"
MOST_PER_NETWORK = Lockout(120, timedelta(hours=1), timedelta(minutes=1), timedelta(minutes=15))
MOST_LETTERS_AN_HOUR = 20
"""To the people of one organization: a scanner that finds a whole repository must not fill their mailboxes."""


def report_leaks(actor: Actor, sent: Any) -> int:
    """Every string of the reports that is ours is dead, on every worker; returns how many strings were taken.

    ``sent`` is what was posted: an array of objects with ``token`` and, if known, ``url``, ``source`` and ``type``, or
    one such object. ``actor`` is a stranger, of no organization. Repeating is harmless. Raises InvalidInput,
    TooManyRequests. Audit: ``secret.leak_reported`` in the organization whose secret it was, beside the event of its
    revocation.
    """
    reports = read_reports(sent)
    _require_patience(actor)
    for report in {report.token: report for report in reports}.values():
        _act_on(actor, report)
    return len(reports)


def _require_patience(actor: Actor) -> None:
    try:
        root = get_root_organization().id
    except NotFound:
        return
    limits = network_limits(MOST_PER_NETWORK, actor.ip_address, "leak reports")
    rate_limits.require_attempt_allowed(
        root,
        "Too many reports came from your network. Wait, then send the rest, up to 100 in one request.",
        *limits,
    )


def _act_on(actor: Actor, report: LeakReport) -> None:
    place = _place(report.token)
    if place is None:
        return
    organization_id, kind = place
    if kind == SETUP:
        revoke_setup_token(report.token)
        return
    try:
        # What leaks while an organization is deleted must not be alive again when it is restored.
        organization = get_unpurged_organization(organization_id)
    except NotFound:
        return
    system = Actor.system(organization.id, LABEL)
    inside = replace(system, ip_address=actor.ip_address, request_id=actor.request_id)
    ended = _end(inside, organization, kind, report)
    if ended is not None:
        end_grants_of(inside, ended.follow_up)


def _place(token: str) -> tuple[str, str] | None:
    """(organization, kind) that the string names, if it has the form of one of ours."""
    parsed = parse_token(token)
    if parsed is not None:
        return parsed.organization_id, parsed.kind
    owner = living_tokens.owner_of(token) if token.startswith("eyJ") else None
    return None if owner is None else (owner, ACCESS_TOKEN)


@transaction
def _end(inside: Actor, organization: OrganizationSnapshot, kind: str, report: LeakReport) -> Ended | None:
    ended = end(inside, kind, report.token)
    if ended is None:
        return None
    after = {"what": ended.words, "url": report.url, "source": report.source, "type": report.type}
    audit.record(
        inside,
        ACTION,
        target_type=ended.target_type,
        target_id=ended.target_id,
        after={**ended.facts, **{name: value for name, value in after.items() if value is not None}},
    )
    _write(organization, ended, report)
    return ended


def _write(organization: OrganizationSnapshot, ended: Ended, report: LeakReport) -> None:
    """Its owner and the administrators hear of it. Of the address they get the host alone: it is a stranger's word.

    Of a deleted organization nobody gets mail: its audit log says it to whoever restores it.
    """
    if not letters.is_possible() or organization.is_deleted:
        return
    bucket = bucket_key("leak letters")
    if not rate_limits.consume_quota(organization.id, bucket, MOST_LETTERS_AN_HOUR, timedelta(hours=1)):
        return
    values = {
        "what": ended.words,
        "where": (urlsplit(report.url).hostname or "") if report.url else "",
        "of": str(ended.facts.get("client_id", "")),
        "link": f"{organization.base_url}/portal/{organization.slug}/audit?action={ACTION}",
    }
    for address in dict.fromkeys(
        [*_owners(organization.id, ended), *addresses_of_administrators(organization.id)]
    ):
        letters.send(organization, address, "secret_leaked", values)


def _owners(organization_id: str, ended: Ended) -> list[str]:
    owner = ended.user_id
    if owner is None and ended.client_id is not None:
        owner = creator_of(organization_id, ended.client_id)
    if owner is None:
        return []
    try:
        return [get_user(organization_id, owner).email]
    except NotFound:
        return []
