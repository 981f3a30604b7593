"""Invitations: a link that lets its holder become a user with a role, once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import ColumnElement, and_, func, select, update

from app.extensions import db
from app.models.user import Invitation
from app.operations.directory.lookups import OrganizationSnapshot, get_organization_by_id
from app.operations.directory.users import create_user, find_user_by_email
from app.operations.mail import letters
from app.operations.sign_in.actor_access import enter_organization
from app.operations.sign_in.passkeys import find_relying_party
from app.operations.store import audit, clock
from app.operations.store.pagination import DEFAULT_LIMIT, Page
from app.operations.store.transactions import count_changed, current_unit_of_work, read, transaction
from app.operations.users.role_assignments import assign_role, require_grantable
from app.rules.actor import Actor
from app.rules.directory.permissions import effective_roles
from app.rules.errors import Conflict, NotFound, PreconditionFailed
from app.rules.fields import Findings
from app.rules.identifiers import decode_uuid, encode_uuid, new_id, parse_public_id, public_id
from app.rules.languages.sentences import sentence
from app.rules.mail.email_addresses import canonical_email
from app.rules.organizations.organizations import parse_email_and_name
from app.rules.organizations.settings_effects import end_of_life
from app.rules.sign_in.passkeys import is_passwordless_enabled
from app.rules.token_values import INVITATION, digest, new_token, parse_token
from app.rules.users.sign_up import has_passwords, require_invitable, require_passwords_to_join
from app.rules.versions import compute_version


class InvitationEnded(Conflict):
    """It was used, withdrawn or has expired."""

    code = "invitation_ended"


@dataclass(frozen=True, slots=True)
class InvitationRecord:
    """An invitation, without its token."""

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
    def public_id(self) -> str:
        """``inv_…``."""
        return public_id("inv", self.id)

    @property
    def version(self) -> int:
        """Another number once anything of it is another."""
        return compute_version(self.id, self.email, self.name, self.role, self.expires_at)


@dataclass(frozen=True, slots=True)
class NewInvitation:
    """An invitation just made; ``link`` holds its token and is shown this once, or None when it went by mail."""

    invitation: InvitationRecord
    link: str | None


def invitation_lifetime_seconds(organization: OrganizationSnapshot) -> int:
    """How long an invitation can be accepted, as the organization's settings are now."""
    seconds: int = organization.settings["authentication"]["registration"]["invitation_ttl_seconds"]
    return seconds


def open_invitation_condition(organization: OrganizationSnapshot) -> ColumnElement[bool]:
    """Those of the organization that can be accepted now."""
    now = clock.now()
    return and_(
        Invitation.organization_id == organization.id,
        Invitation.used_at.is_(None),
        Invitation.revoked_at.is_(None),
        Invitation.expires_at > now,
        Invitation.created_at > now - timedelta(seconds=invitation_lifetime_seconds(organization)),
    )


def invitation_record(row: Invitation, organization: OrganizationSnapshot) -> InvitationRecord:
    """The invitation of a row."""
    return InvitationRecord(
        id=row.id,
        organization_id=organization.id,
        organization_slug=organization.slug,
        organization_name=organization.name,
        email=row.email,
        name=row.name,
        role=row.role,
        created_at=row.created_at,
        created_by=row.created_by,
        expires_at=end_of_life(row.expires_at, row.created_at, invitation_lifetime_seconds(organization)),
        is_mailed=row.is_mailed,
    )


# Open invitations an organization may have: whoever invites must not fill the table.
MAX_OPEN_INVITATIONS = 1000


@transaction
def create_invitation(
    actor: Actor, slug: str, *, email: str, name: str = "", role: str = "member"
) -> NewInvitation:
    """Whoever holds the link may become a user with the role, until it expires; earlier links to them are dead.

    It goes to their mailbox alone; where there is no mail server, the answer holds it, to be handed over.
    Raises InvalidInput naming the field, Forbidden when the actor lacks what the role holds, Conflict when the
    organization has such a user or is closed. Audit: ``invitation.created``.
    """
    inside, organization = enter_organization(actor, slug)
    inside.require("admins:write")
    require_invitable(organization.settings, by_passkey=is_passkey_sign_in_available(organization))
    found = Findings()
    parse_email_and_name({"email": email, "name": name or None}, found)
    require_grantable(inside, organization, role, found)
    canonical = canonical_email(email) or ""
    if find_user_by_email(organization.id, email) is not None:
        raise Conflict("There is a user with this e-mail address already.", field="email", code="email_taken")
    now = clock.now()
    _end_open_ones(organization.id, canonical, now)
    if _open_ones(organization) >= MAX_OPEN_INVITATIONS:
        raise Conflict("Too many invitations are open. Withdraw some first.", code="too_many_invitations")
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
        created_by=inside.label[:200],
        expires_at=now + timedelta(seconds=invitation_lifetime_seconds(organization)),
        is_mailed=letters.is_possible(),
    )
    db.session.add(invitation)
    view = invitation_record(invitation, organization)
    audit.record(
        inside,
        "invitation.created",
        target_type="invitation",
        target_id=view.public_id,
        after={"email": view.email, "role": role},
    )
    link = f"{organization.base_url}/organizations/{organization.slug}/invite/{token}"
    if not view.is_mailed:
        return NewInvitation(view, link)
    until = view.expires_at.isoformat()
    values = {"link": link, "by": inside.label or organization.name, "until": until}
    letters.send(organization, view.email, "invitation", values, until=view.expires_at)
    return NewInvitation(view, None)


@read
def find_invitation(token: str) -> InvitationRecord | None:
    """The open invitation that the token belongs to, or None when it was used, withdrawn, expired or never made.

    Raises Conflict while nobody could sign in by a password or a passkey: it stays open, and is of use when they can.
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
    if row is None or not _is_open(row, organization) or not organization.is_active:
        return None
    if not has_passwords(organization.settings) and not is_passkey_sign_in_available(organization):
        raise Conflict(
            sentence(
                "%(organization)s does not let people sign in with a password or a passkey at the moment, and an "
                "invitation begins with one. Ask whoever invited you: your invitation works again once it does.",
                organization=organization.name,
            ),
            code="passwords_off",
        )
    return invitation_record(row, organization)


def is_passkey_sign_in_available(organization: OrganizationSnapshot) -> bool:
    """Whether a passkey alone signs in to the organization, at this address."""
    return is_passwordless_enabled(organization.settings) and find_relying_party() is not None


@transaction
def accept_invitation(token: str, *, name: str, password_hash: str | None) -> UUID:
    """The invitation is used and its holder is a user with the role.

    Without a ``password_hash`` it is part of the unit that stores a passkey (``passkeys.invited``).
    The address is verified by it if the link came by mail alone; one that was shown to whoever invites proves no
    mailbox. Raises InvitationEnded, for a role that is gone too, Conflict when such a user came to be meanwhile, and
    for a password where nobody signs in with one. Audit: ``invitation.accepted``.
    """
    view = find_invitation(token)
    if view is None:
        raise InvitationEnded("This invitation was used already, was withdrawn or has expired.")
    settings = get_organization_by_id(view.organization_id).settings
    if password_hash is not None:
        require_passwords_to_join(settings)
    if view.role not in effective_roles(settings):
        raise InvitationEnded("The role of this invitation is there no more. Ask for a new one.")
    if not _ended(view.organization_id, view.id, used_at=clock.now()):
        raise InvitationEnded("This invitation was used already.")
    user_id = create_user(
        view.organization_id,
        email=view.email,
        name=name or view.name,
        password_hash=password_hash,
        email_verified=view.is_mailed,
    )
    system = Actor.system(view.organization_id, view.email)
    assign_role(system, view.organization_id, view.organization_id, user_id, view.role)
    audit.record(
        system,
        "invitation.accepted",
        target_type="invitation",
        target_id=view.public_id,
        after={"user_id": public_id("usr", user_id), "role": view.role},
    )
    return user_id


@read
def list_invitations(
    actor: Actor, slug: str, *, limit: int = DEFAULT_LIMIT, after: tuple[str, ...] | None = None
) -> Page[InvitationRecord]:
    """The open invitations of the organization, oldest first."""
    inside, organization = enter_organization(actor, slug)
    inside.require("admins:read")
    statement = (
        select(Invitation)
        .where(open_invitation_condition(organization))
        .order_by(Invitation.id)
        .limit(limit + 1)
    )
    begin = decode_uuid(after[0]) if after else None
    if begin is not None:
        statement = statement.where(Invitation.id > begin)
    rows = db.session.scalars(statement).all()
    items = tuple(invitation_record(row, organization) for row in rows[:limit])
    return Page(items, (encode_uuid(items[-1].id),) if len(rows) > limit else None)


@read
def get_invitation(actor: Actor, slug: str, invitation_id: str) -> InvitationRecord:
    """The open invitation. Raises NotFound, for one that has ended too."""
    inside, organization = enter_organization(actor, slug)
    inside.require("admins:read")
    return invitation_record(_open_row(organization, invitation_id), organization)


@transaction
def revoke_invitation(
    actor: Actor, slug: str, invitation_id: str, *, expected_version: int | None = None
) -> InvitationRecord:
    """The link works no longer. Raises NotFound, for one that has ended too. Audit: ``invitation.revoked``."""
    inside, organization = enter_organization(actor, slug)
    inside.require("admins:write")
    view = invitation_record(_open_row(organization, invitation_id), organization)
    if expected_version is not None and view.version != expected_version:
        raise PreconditionFailed("The invitation was changed since you read it. Read it again.")
    if not _ended(organization.id, view.id, revoked_at=clock.now()):
        raise _unknown()
    audit.record(
        inside,
        "invitation.revoked",
        target_type="invitation",
        target_id=view.public_id,
        before={"email": view.email, "role": view.role},
    )
    return view


def _open_row(organization: OrganizationSnapshot, invitation_id: str) -> Invitation:
    row_id = parse_public_id("inv", invitation_id)
    row = db.session.get(Invitation, (organization.id, row_id)) if row_id is not None else None
    if row is None or not _is_open(row, organization):
        raise _unknown()
    return row


def _unknown() -> NotFound:
    return NotFound("There is no such invitation.")


def _ended(organization_id: str, invitation_id: UUID, **end: datetime) -> bool:
    """The invitation has the end given, if it had none: the row count decides between two who come at once."""
    return bool(
        count_changed(
            update(Invitation)
            .where(
                Invitation.organization_id == organization_id,
                Invitation.id == invitation_id,
                Invitation.used_at.is_(None),
                Invitation.revoked_at.is_(None),
            )
            .values(**end)
        )
    )


def _end_open_ones(organization_id: str, canonical: str, now: datetime) -> None:
    count_changed(
        update(Invitation)
        .where(
            Invitation.organization_id == organization_id,
            Invitation.email_canonical == canonical,
            Invitation.used_at.is_(None),
            Invitation.revoked_at.is_(None),
        )
        .values(revoked_at=now)
    )


def _open_ones(organization: OrganizationSnapshot) -> int:
    return (
        db.session.scalar(
            select(func.count()).select_from(Invitation).where(open_invitation_condition(organization))
        )
        or 0
    )


def _is_open(row: Invitation, organization: OrganizationSnapshot) -> bool:
    is_undecided = row.used_at is None and row.revoked_at is None
    return is_undecided and invitation_record(row, organization).expires_at > clock.now()
