"""Leak reports: revoke secrets that were found in public, and notify their owners.

Anyone who has a secret may report it, and nothing but that secret is revoked. Rules that protect users from locking
themselves out do not apply, because a public secret is not a safe way to sign in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from msgspec import Struct, field
from msgspec.structs import replace
from sqlalchemy import ColumnElement, delete, select, update

from app.extensions import db
from app.models.base import has_key
from app.models.client import ClientRegistration, Credential, RegistrationToken
from app.models.grant import AuthorizationCode, AuthorizationRequest
from app.models.identity_provider import ProvisioningToken
from app.models.second_factor import PendingSignIn
from app.models.session import KnownBrowser, Session
from app.models.token import DeviceCode, PushedRequest
from app.models.user import AccountLink, Invitation, Registration
from app.operations.clients.client_records import find_client_owner
from app.operations.clients.credential_revocation import (
    revoke_credentials_in_transaction,
    revoke_grants_of_secrets,
)
from app.operations.clients.initial_access_tokens import revoke_registration_token
from app.operations.directory.lookups import (
    get_root_organization,
    get_unpurged_organization,
    is_in_another_cell,
)
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.directory.users import get_user, hold_user, is_active_user
from app.operations.mail import emails
from app.operations.mail.notices import administrator_emails
from app.operations.organizations.setup import revoke_setup_token
from app.operations.sign_in.provisioning_tokens import delete_provisioning_token
from app.operations.sign_in.sessions import end_sessions
from app.operations.store import audit, clock, rate_limits
from app.operations.store.rate_limits import bucket_key, network_limits
from app.operations.store.transactions import count_changed, transaction
from app.operations.tokens import tokens
from app.operations.tokens.revocation import revoke_token
from app.rules import identifiers
from app.rules.actor import Actor
from app.rules.audit.leaked_secrets import LeakReport, parse_leak_reports
from app.rules.errors import NotFound, OrganizationMoving, Unavailable
from app.rules.identifiers import ACCESS_TOKEN, SETUP, digest, format_client_id, parse_token, public_id
from app.rules.languages.translation import lazy_gettext
from app.rules.sign_in.passwords import Lockout

LABEL = "leak report"
ACTION = "secret.leak_reported"
NETWORK_LIMIT = Lockout(120, timedelta(hours=1), timedelta(minutes=1), timedelta(minutes=15))
MAX_EMAILS_PER_HOUR = 20
"""Per organization, because a scanner that finds a whole repository must not fill mailboxes."""


class RevokedSecret(Struct, frozen=True):
    """The revoked secret: its description, its name in the audit log, and its owner.

    ``follow_up`` are client secrets whose grants ``revoke_grants_of_secrets`` revokes afterwards. If the process dies
    before that, the outbox does it.
    """

    description: str
    target_type: str
    target_id: str | None = None
    client_id: UUID | None = None
    user_id: UUID | None = None
    follow_up: tuple[UUID, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


def revoke_leaked_secret(actor: Actor, kind: str, token: str) -> RevokedSecret | None:
    """Revoke the secret, or return None if it was not valid. Runs in the transaction that records it."""
    revoke = _REVOCATIONS.get(kind)
    return None if revoke is None else revoke(actor, token)


def _is_named(actor: Actor, model: Any, token: str) -> ColumnElement[bool]:
    """Return the condition that the row of the actor's organization has the token's digest."""
    named: ColumnElement[bool] = (model.organization_id == actor.organization_id) & (
        model.digest == digest(token)
    )
    return named


def _revoke_client_secret(actor: Actor, token: str) -> RevokedSecret | None:
    row = db.session.execute(
        select(Credential.id, Credential.client_id, Credential.name).where(
            _is_named(actor, Credential, token)
        )
    ).first()
    if row is None:
        return None
    client_id, secret = format_client_id(actor.organization_id, row.client_id), public_id("sec", row.id)
    try:
        # An attacker may have issued tokens with the secret, so revoke these too.
        counts, flagged = revoke_credentials_in_transaction(
            actor, client_id, credential_id=secret, revoke_tokens=True
        )
    except NotFound:
        return None
    if not counts.credentials and not flagged:
        return None
    facts = {"client_id": client_id, "name": row.name}
    return RevokedSecret(
        lazy_gettext("A client secret"), "credential", secret, row.client_id, None, tuple(flagged), facts
    )


def _revoke_access_or_refresh_token(actor: Actor, token: str) -> RevokedSecret | None:
    revoked = revoke_token(actor, token)
    if revoked is None:
        return None
    description = (
        lazy_gettext("A refresh token")
        if revoked.kind == "refresh_token"
        else lazy_gettext("An access token")
    )
    facts = {"client_id": format_client_id(actor.organization_id, revoked.client_id)}
    return RevokedSecret(
        description, revoked.kind, revoked.public_id, revoked.client_id, revoked.user_id, facts=facts
    )


def _revoke_session(actor: Actor, token: str) -> RevokedSecret | None:
    of_token = select(Session.id, Session.user_id).where(_is_named(actor, Session, token))
    row = db.session.execute(of_token).first()
    if row is None:
        return None
    hold_user(actor.organization_id, row.user_id)
    if not end_sessions(actor.organization_id, Session.id == row.id):
        return None
    session_id = public_id("ses", row.id)
    audit.record_user_event(actor, "session.ended", row.user_id, after={"session": session_id})
    return RevokedSecret(lazy_gettext("A session cookie"), "session", session_id, user_id=row.user_id)


def _revoke_initial_access_token(actor: Actor, token: str) -> RevokedSecret | None:
    row_id = db.session.scalar(select(RegistrationToken.id).where(_is_named(actor, RegistrationToken, token)))
    if row_id is None:
        return None
    target = public_id("ria", row_id)
    try:
        revoke_registration_token(actor, target)
    except NotFound:
        return None
    return RevokedSecret(lazy_gettext("An initial access token"), "registration_token", target)


def _revoke_registration_access_token(actor: Actor, token: str) -> RevokedSecret | None:
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
            has_key(ClientRegistration, actor.organization_id, row_id),
            ClientRegistration.access_digest == digest(token),
        )
        .values(access_digest=None)
    )
    target = format_client_id(actor.organization_id, row_id)
    description = lazy_gettext("A client's registration access token")
    return (
        RevokedSecret(description, "client", target, row_id, facts={"client_id": target})
        if changed == 1
        else None
    )


def _delete_provisioning_token(actor: Actor, token: str) -> RevokedSecret | None:
    row = db.session.execute(
        select(ProvisioningToken.id, ProvisioningToken.provider_id).where(
            _is_named(actor, ProvisioningToken, token)
        )
    ).first()
    if row is None:
        return None
    provider, target = public_id("idp", row.provider_id), public_id("pvt", row.id)
    try:
        delete_provisioning_token(actor, provider, target)
    except NotFound:
        return None
    description = lazy_gettext("A provisioning token of an identity provider")
    return RevokedSecret(description, "provisioning_token", target, facts={"provider": provider})


def _revoke_invitation(actor: Actor, token: str) -> RevokedSecret | None:
    condition = (
        _is_named(actor, Invitation, token)
        & Invitation.used_at.is_(None)
        & Invitation.revoked_at.is_(None)
        & (Invitation.expires_at > clock.now())
    )
    row = db.session.execute(
        select(Invitation.id, Invitation.email, Invitation.role).where(condition)
    ).first()
    if count_changed(update(Invitation).where(condition).values(revoked_at=clock.now())) != 1 or row is None:
        return None
    target, before = public_id("inv", row.id), {"email": row.email, "role": row.role}
    audit.record(actor, "invitation.revoked", "invitation", target, before=before)
    return RevokedSecret(lazy_gettext("An invitation link"), "invitation", target)


def _revoke_account_link(actor: Actor, token: str) -> RevokedSecret | None:
    condition = _is_named(actor, AccountLink, token) & (AccountLink.expires_at > clock.now())
    user_id = db.session.scalar(select(AccountLink.user_id).where(condition))
    if user_id is None or count_changed(delete(AccountLink).where(condition)) != 1:
        return None
    return RevokedSecret(lazy_gettext("An account link"), "user", public_id("usr", user_id), user_id=user_id)


def _revoke_email_link(actor: Actor, token: str) -> RevokedSecret | None:
    """Revoke the link that verifies the email of an account or of a pending registration."""
    return _revoke_account_link(actor, token) or _delete_registration(actor, token)


def _delete_registration(actor: Actor, token: str) -> RevokedSecret | None:
    condition = _is_named(actor, Registration, token) & (Registration.expires_at > clock.now())
    row_id = db.session.scalar(select(Registration.id).where(condition))
    if row_id is None or count_changed(delete(Registration).where(condition)) != 1:
        return None
    return RevokedSecret(lazy_gettext("An account link"), "registration", public_id("reg", row_id))


def _revoke_known_browser(actor: Actor, token: str) -> RevokedSecret | None:
    condition = _is_named(actor, KnownBrowser, token)
    row = db.session.execute(select(KnownBrowser.id, KnownBrowser.user_id).where(condition)).first()
    if row is None or count_changed(delete(KnownBrowser).where(condition)) != 1:
        return None
    forgotten = {"browser": public_id("kbr", row.id)}
    audit.record_user_event(actor, "browser.forgotten", row.user_id, after=forgotten)
    description, target = lazy_gettext("The cookie of a recognized browser"), public_id("usr", row.user_id)
    return RevokedSecret(description, "user", target, user_id=row.user_id)


def _expire_now(
    model: Any, description: str, target_type: str
) -> Callable[[Actor, str], RevokedSecret | None]:
    """Return a function that expires a short-lived secret now."""

    def act(actor: Actor, token: str) -> RevokedSecret | None:
        now = clock.now()
        revoked = count_changed(
            update(model).where(_is_named(actor, model, token), model.expires_at > now).values(expires_at=now)
        )
        return RevokedSecret(description, target_type) if revoked == 1 else None

    return act


_REVOCATIONS: Mapping[str, Callable[[Actor, str], RevokedSecret | None]] = {
    identifiers.CLIENT_SECRET: _revoke_client_secret,
    identifiers.ACCESS_TOKEN: _revoke_access_or_refresh_token,
    identifiers.REFRESH_TOKEN: _revoke_access_or_refresh_token,
    identifiers.SESSION: _revoke_session,
    identifiers.INITIAL_ACCESS: _revoke_initial_access_token,
    identifiers.REGISTRATION_ACCESS: _revoke_registration_access_token,
    identifiers.PROVISIONING: _delete_provisioning_token,
    identifiers.INVITATION: _revoke_invitation,
    identifiers.PASSWORD_RESET: _revoke_account_link,
    identifiers.EMAIL_VERIFICATION: _revoke_email_link,
    identifiers.KNOWN_BROWSER: _revoke_known_browser,
    identifiers.AUTHORIZATION_CODE: _expire_now(
        AuthorizationCode, lazy_gettext("An authorization code"), "authorization_code"
    ),
    identifiers.DEVICE_CODE: _expire_now(DeviceCode, lazy_gettext("A device code"), "device_code"),
    identifiers.AUTHORIZATION_REQUEST: _expire_now(
        AuthorizationRequest, lazy_gettext("An authorization request"), "authorization_request"
    ),
    identifiers.PUSHED_REQUEST: _expire_now(
        PushedRequest, lazy_gettext("A pushed authorization request"), "pushed_request"
    ),
    identifiers.PENDING_SIGN_IN: _expire_now(
        PendingSignIn, lazy_gettext("An unfinished sign-in"), "pending_sign_in"
    ),
}
KINDS = frozenset(_REVOCATIONS) | {identifiers.SETUP}


def report_leaks(actor: Actor, sent: Any) -> int:
    """Revoke every reported secret of this server on every worker, and return how many strings were reported.

    ``sent`` is the request body: an array of objects with ``token`` and optionally ``url``, ``source`` and ``type``, or
    one such object. ``actor`` is anonymous and in no organization. Repeating a report is harmless. Raises InvalidInput,
    TooManyRequests and, after all others were processed, Unavailable for secrets of an organization that is being moved
    or has moved to another cell. Audit: ``secret.leak_reported`` in the organization of the secret, besides the event
    of its revocation.
    """
    reports = parse_leak_reports(sent)
    _enforce_rate_limit(actor)
    is_complete = True
    for report in {report.token: report for report in reports}.values():
        is_complete &= _process_report(actor, report)
    if not is_complete:
        raise Unavailable(
            "An organization of these secrets is being moved or has moved to another server of this service. Other "
            "reports were processed. Send all of them again in a moment."
        )
    return len(reports)


def _enforce_rate_limit(actor: Actor) -> None:
    try:
        root = get_root_organization().id
    except NotFound:
        return
    limits = network_limits(NETWORK_LIMIT, actor.ip_address, "leak reports")
    rate_limits.require_attempt_allowed(
        root,
        "Too many reports from your network. Wait a few minutes, then send up to 100 reports in one request.",
        *limits,
    )


def _process_report(actor: Actor, report: LeakReport) -> bool:
    """Revoke the secret if it is one. Return False if another cell has to do that."""
    try:
        place = _parse_secret(report.token)
    except OrganizationMoving:
        return False
    if place is None:
        return True
    organization_id, kind = place
    if kind == SETUP:
        revoke_setup_token(report.token)
        return True
    if is_in_another_cell(organization_id):
        return False
    try:
        # A secret that leaks while its organization is deleted must not be valid after a restore.
        organization = get_unpurged_organization(organization_id)
    except NotFound:
        return True
    system = Actor.system(organization.id, LABEL)
    inside = replace(system, ip_address=actor.ip_address, request_id=actor.request_id)
    revoked = _revoke_and_record(inside, organization, kind, report)
    if revoked is not None:
        revoke_grants_of_secrets(inside, revoked.follow_up)
    return True


def _parse_secret(token: str) -> tuple[str, str] | None:
    """Return (organization, kind) of a string that has the form of a secret of this server."""
    parsed = parse_token(token)
    if parsed is not None:
        return parsed.organization_id, parsed.kind
    owner = tokens.owner_of(token) if token.startswith("eyJ") else None
    return None if owner is None else (owner, ACCESS_TOKEN)


@transaction
def _revoke_and_record(
    actor: Actor, organization: OrganizationSnapshot, kind: str, report: LeakReport
) -> RevokedSecret | None:
    revoked = revoke_leaked_secret(actor, kind, report.token)
    if revoked is None:
        return None
    after = {"what": revoked.description, "url": report.url, "source": report.source, "type": report.type}
    audit.record(
        actor,
        ACTION,
        revoked.target_type,
        revoked.target_id,
        after={**revoked.facts, **{name: value for name, value in after.items() if value is not None}},
    )
    _notify(organization, revoked, report)
    return revoked


def _notify(organization: OrganizationSnapshot, revoked: RevokedSecret, report: LeakReport) -> None:
    """Notify the owner and the administrators by email, with only the host of the reported URL, which is unverified.

    No email is sent for a deleted organization. Its audit log has the event if it is restored.
    """
    if not emails.is_possible() or organization.is_deleted:
        return
    bucket = bucket_key("leak emails")
    if not rate_limits.consume_quota(organization.id, bucket, MAX_EMAILS_PER_HOUR, timedelta(hours=1)):
        return
    values = {
        "what": revoked.description,
        "where": (urlsplit(report.url).hostname or "") if report.url else "",
        "of": str(revoked.facts.get("client_id", "")),
    }
    log = f"{organization.base_url}/portal/{organization.slug}/audit?action={ACTION}"
    administrators = administrator_emails(organization.id)
    for address in administrators:
        emails.send(organization, address, "secret_leaked", values | {"reader": "administrator", "link": log})
    for address in _find_owner_emails(organization.id, revoked):
        if address not in administrators:
            emails.send(
                organization, address, "secret_leaked", values | _page_of_owner(organization, revoked)
            )


def _page_of_owner(organization: OrganizationSnapshot, revoked: RevokedSecret) -> dict[str, str]:
    """Return the values of the email that name the page of the account or client: owners may not see the audit log."""
    if revoked.user_id is not None:
        page = f"{organization.base_url}/organizations/{organization.slug}/account/security"
        return {"reader": "user", "link": page}
    page = f"{organization.base_url}/portal/{organization.slug}/clients/{revoked.facts['client_id']}"
    return {"reader": "developer", "link": page}


def _find_owner_emails(organization_id: str, revoked: RevokedSecret) -> list[str]:
    owner = revoked.user_id
    if owner is None and revoked.client_id is not None:
        owner = find_client_owner(organization_id, revoked.client_id)
        # One who has left learns nothing about the client any more.
        owner = owner if owner is not None and is_active_user(organization_id, owner) else None
    if owner is None:
        return []
    try:
        return [get_user(organization_id, owner).email]
    except NotFound:
        return []
