"""Invitations: a single-use link that makes its holder a user with a role, by password or by passkey."""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import ColumnElement, and_, insert, select, update

from app.extensions import db
from app.models.second_factor import PasskeyHandle
from app.models.user import Invitation
from app.operations.directory.lookups import get_organization_by_id
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.directory.users import create_user, find_user_by_email
from app.operations.mail import emails
from app.operations.sign_in.actor_access import enter_organization, find_current_permissions
from app.operations.sign_in.offered_providers import list_offered_providers
from app.operations.sign_in.passkey_registration import VerifiedPasskey, store_passkey, verify_new_passkey
from app.operations.sign_in.passkeys import INVITATION as INVITATION_PASSKEY
from app.operations.sign_in.passkeys import (
    get_relying_party,
    is_passkey_sign_in_available,
    issue_challenge,
)
from app.operations.sign_in.passwords import hash_new_password
from app.operations.sign_in.sign_in import Browser, SecondStepRequired, SignedIn, complete_first_factor
from app.operations.store import audit, clock, keyring
from app.operations.store.rows import Page, PageRequest, count_rows, make_record, read_page
from app.operations.store.transactions import count_changed, current_unit_of_work, read, transaction
from app.operations.users.role_assignments import announce_role, assign_role, require_grantable
from app.rules.actor import Actor
from app.rules.directory.permissions import MEMBER, effective_roles, missing_permissions, permissions_of_role
from app.rules.errors import Conflict, NotFound
from app.rules.fields import ValidationErrors
from app.rules.identifiers import (
    INVITATION,
    HasPublicId,
    digest,
    new_id,
    new_token,
    parse_public_id,
    parse_token,
    public_id,
)
from app.rules.languages.translation import lazy_gettext
from app.rules.mail.email_addresses import canonical_email
from app.rules.organizations.organizations import check_email_and_name
from app.rules.organizations.settings import earliest_expiry
from app.rules.sign_in.passkeys import creation_options, passkey_amr
from app.rules.users.profile import (
    are_new_users_accepted,
    are_passwords_enabled,
    require_invitation_by_password,
    require_invitations_possible,
)
from app.rules.versions import ExpectedVersion, compute_version, require_version

MAX_OPEN_INVITATIONS = 1000
"""Per organization, so that invitations cannot fill the table."""


class InvitationEnded(Conflict):
    """The invitation was used or withdrawn or has expired."""

    code = "invitation_ended"


class InvitationRecord(HasPublicId, Struct, frozen=True):
    """An invitation without its token."""

    id_prefix = "inv"
    id: UUID
    organization_id: str
    organization_slug: str
    organization_name: str
    email: str
    name: str
    role: str
    created_at: datetime
    created_by: str | None
    expires_at: datetime
    is_mailed: bool

    @property
    def version(self) -> int:
        """Return a number that changes when any field of the invitation changes."""
        return compute_version(self.id, self.email, self.name, self.role, self.expires_at)


class NewInvitation(Struct, frozen=True):
    """A new invitation.

    ``link`` contains its token and is available only here, or is None if it was emailed.
    """

    invitation: InvitationRecord
    link: str | None


def invitation_lifetime_seconds(organization: OrganizationSnapshot) -> int:
    """Return how long an invitation can be accepted under the organization's current settings."""
    seconds: int = organization.settings["authentication"]["registration"]["invitation_ttl_seconds"]
    return seconds


def open_invitation_condition(organization: OrganizationSnapshot) -> ColumnElement[bool]:
    """Return the SQL condition that an invitation of the organization can be accepted now."""
    now = clock.now()
    created_after = now - timedelta(seconds=invitation_lifetime_seconds(organization))
    if organization.restored_at is not None:
        created_after = max(created_after, organization.restored_at)
    return and_(
        Invitation.organization_id == organization.id,
        Invitation.used_at.is_(None),
        Invitation.revoked_at.is_(None),
        Invitation.expires_at > now,
        Invitation.created_at > created_after,
    )


def invitation_record(row: Invitation, organization: OrganizationSnapshot) -> InvitationRecord:
    """Return the record of a row."""
    return make_record(
        InvitationRecord,
        row,
        organization_id=organization.id,
        organization_slug=organization.slug,
        organization_name=organization.name,
        expires_at=earliest_expiry(row.expires_at, row.created_at, invitation_lifetime_seconds(organization)),
    )


@transaction
def create_invitation(
    actor: Actor, slug: str, *, email: str, name: str = "", role: str = "member"
) -> NewInvitation:
    """Invite someone to become a user with the role. Their earlier invitations become invalid.

    The link is emailed. Without a mail server it is returned for the actor to pass on. Raises InvalidInput
    naming the field, Forbidden when the actor lacks a permission of the role, Conflict when the email has a
    user or the organization does not accept users, TooManyRequests for too many emails, and
    FreshSignInRequired for any role but ``member`` if the user signed in too long ago. Audit:
    ``invitation.created``.
    """
    inside, organization = enter_organization(actor, slug, "admins:write")
    require_invitations_possible(
        organization.settings, without_password=_can_sign_in_without_password(organization)
    )
    found = ValidationErrors()
    check_email_and_name(email, name or None, found)
    require_grantable(inside, organization, role, found)
    canonical = canonical_email(email) or ""
    if find_user_by_email(organization.id, email) is not None:
        raise Conflict("There is already a user with this email address.", field="email", code="email_taken")
    now = clock.now()
    _end_invitations(organization.id, Invitation.email_canonical == canonical, revoked_at=now)
    if (
        count_rows(select(Invitation.id).where(open_invitation_condition(organization)))
        >= MAX_OPEN_INVITATIONS
    ):
        raise Conflict("Too many invitations are pending. Revoke some first.", code="too_many_invitations")
    emails.require_quota(organization, canonical, "invitation")
    unit = current_unit_of_work()
    token: str = unit.stable_value(f"invitation {canonical}", lambda: new_token(INVITATION, organization.id))
    invitation = Invitation(
        organization_id=organization.id,
        id=unit.stable_value(f"invitation id {canonical}", new_id),
        digest=digest(token),
        email=email.strip(),
        email_canonical=canonical,
        name=name,
        role=role,
        created_at=now,
        created_by=inside.author,
        created_by_id=audit.actor_public_id(inside),
        expires_at=now + timedelta(seconds=invitation_lifetime_seconds(organization)),
        is_mailed=emails.is_possible(),
    )
    db.session.add(invitation)
    record = invitation_record(invitation, organization)
    audit.record(
        inside,
        "invitation.created",
        "invitation",
        record.public_id,
        after={"email": record.email, "role": role},
    )
    link = f"{organization.base_url}/organizations/{organization.slug}/invite/{token}"
    if not record.is_mailed:
        return NewInvitation(record, link)
    until = record.expires_at.isoformat()
    values = {"link": link, "by": inside.label or organization.name, "until": until}
    emails.send(organization, record.email, "invitation", values, until=record.expires_at)
    return NewInvitation(record, None)


@read
def find_invitation(token: str) -> InvitationRecord | None:
    """Find the open invitation of a token, or None if it was used or withdrawn, has expired or never existed.

    It is not open either if its sender could no longer send it (TN-11). Raises Conflict while the organization accepts
    no new users, or neither passwords nor passkeys are enabled. The invitation stays open until then.
    """
    parsed = parse_token(token)
    if parsed is None or parsed.kind != INVITATION:
        return None
    row = db.session.scalar(
        select(Invitation).where(
            Invitation.organization_id == parsed.organization_id, Invitation.digest == digest(token)
        )
    )
    try:
        organization = get_organization_by_id(parsed.organization_id)
    except NotFound:
        return None
    if row is None or not _is_open_row(row, organization) or not organization.is_active:
        return None
    if not _could_still_be_sent(row, organization):
        return None
    _require_acceptable(organization)
    return invitation_record(row, organization)


@transaction
def accept_invitation(token: str, *, name: str, password_hash: str | None) -> UUID:
    """Accept an invitation: create the user with its role and return the id.

    Without a ``password_hash``, call it in the transaction that stores a passkey or links an account of an identity
    provider. The email is verified only
    if the link was emailed, not if the inviter received it. Raises InvitationEnded, also when the role is
    gone, and Conflict when the email has a user by now, for a password where passwords are disabled, and as
    ``find_invitation``.
    Audit: ``invitation.accepted``.
    """
    record = find_invitation(token)
    if record is None:
        raise InvitationEnded("This invitation has expired, or was already used or revoked.")
    organization = get_organization_by_id(record.organization_id)
    settings = organization.settings
    if password_hash is not None:
        require_invitation_by_password(settings)
    if record.role not in effective_roles(settings):
        raise InvitationEnded("The role in this invitation no longer exists. Ask for a new invitation.")
    if not _end_invitations(record.organization_id, Invitation.id == record.id, used_at=clock.now()):
        raise InvitationEnded("This invitation was already used.")
    user_id = create_user(
        record.organization_id,
        email=record.email,
        name=name or record.name,
        password_hash=password_hash,
        email_verified=record.is_mailed,
    )
    system = Actor.system(record.organization_id, record.email)
    assign_role(system, record.organization_id, record.organization_id, user_id, record.role)
    announce_role(system, organization, user_id, record.email, record.role, by=record.created_by or "")
    audit.record(
        system,
        "invitation.accepted",
        "invitation",
        record.public_id,
        after={"user_id": public_id("usr", user_id), "role": record.role},
    )
    return user_id


@read
def list_invitations(
    actor: Actor, slug: str, page_request: PageRequest = PageRequest(), *, of_members: bool | None = None
) -> Page[InvitationRecord]:
    """List the organization's open invitations, oldest first.

    ``of_members`` limits them to the invitations of ordinary users, or of administrators.
    """
    _, organization = enter_organization(actor, slug, "admins:read")
    statement = select(Invitation).where(open_invitation_condition(organization))
    if of_members is not None:
        statement = statement.where((Invitation.role == MEMBER) == of_members)
    return read_page(statement, (Invitation.id,), page_request, descending=False).map(
        lambda row: invitation_record(row, organization)
    )


@read
def get_invitation(actor: Actor, slug: str, invitation_id: str) -> InvitationRecord:
    """Return the open invitation. Raises NotFound, also for one that has ended."""
    _, organization = enter_organization(actor, slug, "admins:read")
    return invitation_record(_get_open_row(organization, invitation_id), organization)


@transaction
def revoke_invitation(
    actor: Actor, slug: str, invitation_id: str, *, expected_version: ExpectedVersion = None
) -> InvitationRecord:
    """Withdraw an open invitation.

    Raises NotFound, also for one that has ended. Audit: ``invitation.revoked``.
    """
    inside, organization = enter_organization(actor, slug, "admins:write")
    record = invitation_record(_get_open_row(organization, invitation_id), organization)
    require_version(record.version, expected_version)
    if not _end_invitations(organization.id, Invitation.id == record.id, revoked_at=clock.now()):
        raise NotFound("There is no such invitation.")
    audit.record(
        inside,
        "invitation.revoked",
        "invitation",
        record.public_id,
        before={"email": record.email, "role": record.role},
    )
    return record


def _get_open_row(organization: OrganizationSnapshot, invitation_id: str) -> Invitation:
    row_id = parse_public_id("inv", invitation_id)
    row = db.session.get(Invitation, (organization.id, row_id)) if row_id is not None else None
    if row is None or not _is_open_row(row, organization):
        raise NotFound("There is no such invitation.")
    return row


def _end_invitations(organization_id: str, condition: ColumnElement[bool], **end: datetime) -> int:
    """Set the end of those that have none yet. The row count decides between concurrent callers."""
    return count_changed(
        update(Invitation)
        .where(
            Invitation.organization_id == organization_id,
            condition,
            Invitation.used_at.is_(None),
            Invitation.revoked_at.is_(None),
        )
        .values(**end)
    )


def _is_open_row(row: Invitation, organization: OrganizationSnapshot) -> bool:
    is_pending = row.used_at is None and row.revoked_at is None
    is_pending = is_pending and not organization.is_before_restore(row.created_at)
    return is_pending and invitation_record(row, organization).expires_at > clock.now()


def _require_acceptable(organization: OrganizationSnapshot) -> None:
    """Raise Conflict while nobody may join, or a new user could not sign in."""
    if not are_new_users_accepted(organization.settings):
        raise Conflict(
            lazy_gettext(
                "%(organization)s doesn't accept new users, so this invitation can't be accepted right now. Contact "
                "the person who invited you.",
                organization=organization.title,
            ),
            code="registration_closed",
        )
    if not are_passwords_enabled(organization.settings) and not _can_sign_in_without_password(organization):
        raise Conflict(
            lazy_gettext(
                "%(organization)s has turned off every way to sign in that a new user could use, so this "
                "invitation can't be accepted right now. Contact the person who invited you.",
                organization=organization.title,
            ),
            code="passwords_off",
        )


def _could_still_be_sent(row: Invitation, organization: OrganizationSnapshot) -> bool:
    """Return whether the sender may still invite to the role, so that it is no way back for a removed administrator."""
    if row.created_by_id is None:
        return True
    wanted = {
        "admins:write",
        *permissions_of_role(row.role, organization.settings, is_root=organization.is_root),
    }
    return not missing_permissions(find_current_permissions(organization, row.created_by_id), wanted)


def begin_invited_passkey(
    actor: Actor, invitation: InvitationRecord, browser: Browser
) -> Mapping[str, Any] | None:
    """Return the passkey creation options as JSON for an invitation, or None if users choose a password.

    ``actor`` is the anonymous actor.
    """
    organization = get_organization_by_id(actor.organization_id)
    if not _is_accepted_with_passkey(organization):
        return None
    return creation_options(
        get_relying_party(),
        issue_challenge(organization, INVITATION_PASSKEY, browser.id, invitation.public_id),
        title=organization.title,
        handle=_handle_of(organization, invitation),
        email=invitation.email,
        name=invitation.name,
        existing=(),
        passwordless=True,
    )


def accept_invitation_with_password(
    actor: Actor, invitation: InvitationRecord, token: str, password: str, name: str, browser: Browser
) -> SignedIn | SecondStepRequired:
    """Create the invited user with the password, and sign them in.

    ``actor`` is the anonymous actor. Raises InvalidInput naming ``password``, Unavailable when hashing has to wait, and
    as ``accept_invitation``. Audit: as ``accept_invitation``, ``session.started``.
    """
    organization = get_organization_by_id(actor.organization_id)
    # Checked before the password, which would be of no use.
    require_invitation_by_password(organization.settings)
    password_hash = hash_new_password(
        organization.settings,
        password,
        personal=(invitation.email, name, organization.name, organization.slug),
        organization_id=organization.id,
        ip_address=actor.ip_address,
    )
    return _accept_with_password(actor, organization, token, name, password_hash, browser)


def accept_invitation_with_passkey(
    actor: Actor, invitation: InvitationRecord, token: str, response_json: str, name: str, browser: Browser
) -> SignedIn | SecondStepRequired:
    """Create the invited user with the passkey of the browser's response, and sign them in.

    ``actor`` is the anonymous actor. Raises InvalidPasskeyResponse, PasskeyNotVerified, InvalidChallenge,
    Conflict if the passkey cannot sign in alone or users choose passwords, and as ``accept_invitation``.
    Audit: as ``accept_invitation``, ``passkey.registered``, ``session.started``.
    """
    organization = get_organization_by_id(actor.organization_id)
    if not _is_accepted_with_passkey(organization):
        raise Conflict("Choose a password to accept the invitation.", code="passwords_on")
    verified = verify_new_passkey(
        organization, INVITATION_PASSKEY, invitation.public_id, response_json, "", browser
    )
    if not (verified.created.was_verified and verified.response.is_discoverable):
        raise Conflict(
            "You can't sign in with only this passkey. It didn't verify you, or it isn't stored on the "
            "device. Use another device.",
            code="passkey_not_alone",
        )
    return _accept_with_passkey(actor, organization, invitation, token, name, verified, browser)


def _can_sign_in_without_password(organization: OrganizationSnapshot) -> bool:
    return is_passkey_sign_in_available(organization) or bool(list_offered_providers(organization))


def _is_accepted_with_passkey(organization: OrganizationSnapshot) -> bool:
    """Return whether invited users create a passkey, because they cannot choose a password."""
    return not are_passwords_enabled(organization.settings) and is_passkey_sign_in_available(organization)


@transaction
def _accept_with_password(
    actor: Actor,
    organization: OrganizationSnapshot,
    token: str,
    name: str,
    password_hash: str,
    browser: Browser,
) -> SignedIn | SecondStepRequired:
    # Both at once: the link works only once.
    user_id = accept_invitation(token, name=name, password_hash=password_hash)
    return complete_first_factor(actor, organization, user_id, amr=("pwd",), browser=browser)


@transaction
def _accept_with_passkey(
    actor: Actor,
    organization: OrganizationSnapshot,
    invitation: InvitationRecord,
    token: str,
    name: str,
    verified: VerifiedPasskey,
    browser: Browser,
) -> SignedIn | SecondStepRequired:
    user_id = accept_invitation(token, name=name, password_hash=None)
    db.session.execute(
        insert(PasskeyHandle).values(
            organization_id=organization.id, user_id=user_id, handle=_handle_of(organization, invitation)
        )
    )
    store_passkey(actor.as_user(user_id, invitation.email), organization, user_id, verified)
    amr = passkey_amr(may_sync=verified.created.may_sync, passwordless=True)
    return complete_first_factor(actor, organization, user_id, amr=amr, browser=browser)


def _handle_of(organization: OrganizationSnapshot, invitation: InvitationRecord) -> str:
    """Return 256 bits that reveal nothing about the user (MF-5) and are constant for the invitation."""
    key = keyring.derive_organization_key(organization.id, "passkey handles of invitations")
    made = hmac.new(key, invitation.id.bytes, hashlib.sha256).digest()
    return urlsafe_b64encode(made).rstrip(b"=").decode()
