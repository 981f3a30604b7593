"""Registration: users create their own accounts where allowed, and the mailed links that confirm them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from sqlalchemy import delete, select

from app.extensions import db
from app.models.base import has_key, is_same
from app.models.user import ACTIVE, AccountLink, User
from app.operations.directory.lookups import get_organization_by_id
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.directory.users import create_user
from app.operations.mail import emails
from app.operations.sign_in.passwords import hash_new_password
from app.operations.store import audit, clock, rate_limits
from app.operations.store.rate_limits import Limit, bucket_key, network_limits
from app.operations.store.rows import make_record
from app.operations.store.transactions import (
    count_changed,
    current_unit_of_work,
    insert_or_update,
    read,
    transaction,
)
from app.operations.users.role_assignments import assign_role
from app.rules.actor import Actor
from app.rules.errors import Conflict, Forbidden
from app.rules.fields import ValidationErrors
from app.rules.identifiers import digest, new_token, parse_token
from app.rules.languages.translation import lazy_gettext
from app.rules.mail.email_addresses import canonical_email
from app.rules.organizations.organizations import parse_email_and_name
from app.rules.organizations.settings import earliest_expiry
from app.rules.sign_in.passwords import Lockout
from app.rules.users.profile import is_domain_allowed, is_registration_open

REGISTRATION_MESSAGE = "registration"
MAX_REGISTRATIONS_PER_NETWORK = 20
"""Per hour. Registering and then signing in reveals whether an email already had an account."""
MAX_EMAILS_PER_MAILBOX = 3
"""Per hour, so that strangers cannot flood a mailbox."""
_PER_NETWORK = Lockout(
    MAX_REGISTRATIONS_PER_NETWORK, timedelta(hours=1), timedelta(minutes=1), timedelta(minutes=15)
)
_PER_MAILBOX = Lockout(MAX_EMAILS_PER_MAILBOX, timedelta(hours=1), timedelta(hours=1), timedelta(hours=1))


def require_registration_open(organization: OrganizationSnapshot) -> None:
    """Require that the organization allows registration. Raises Forbidden."""
    if not organization.is_active or not is_registration_open(organization.settings):
        raise Forbidden(
            lazy_gettext(
                "%(organization)s doesn't allow people to create their own accounts.",
                organization=organization.name,
            )
        )


def next_registration_step(organization: OrganizationSnapshot) -> Literal["mail", "administrator", "sign_in"]:
    """Return what follows a registration: an emailed link, an administrator's approval, or signing in."""
    if not organization.settings["authentication"]["registration"]["verify_email"]:
        return "sign_in"
    return "mail" if emails.is_possible() else "administrator"


def register_user(
    organization: OrganizationSnapshot,
    *,
    email: str,
    name: str,
    password: str,
    ip_address: str | None,
    request_id: str | None,
) -> None:
    """Register a user, or create the account at once if emails are not verified.

    Nothing reveals whether the email has an account already (EN-1): the work and the result are the same, and
    the password is used only for a new account. If ``authentication.registration.verify_email`` is on, the
    outbox continues (``registrations.process_registration``), and requests beyond the hourly limit of a
    mailbox are ignored silently. Raises Forbidden if registration is not open, InvalidInput naming every
    wrong field, TooManyRequests, Unavailable. Audit, if the account is created here: ``user.registered`` or
    ``user.registration_refused``.
    """
    require_registration_open(organization)
    found = ValidationErrors()
    parse_email_and_name({"email": email, "name": name}, found)
    if not found.has_error("email") and not is_domain_allowed(email, organization.settings):
        found.add(
            "email",
            "domain_not_allowed",
            "This organization doesn't accept email addresses from this domain.",
        )
    found.raise_if_any()
    password_hash = hash_new_password(
        organization.settings,
        password,
        personal=(email, name, organization.name, organization.slug),
        organization_id=organization.id,
        ip_address=ip_address,
    )
    rate_limits.require_attempt_allowed(
        organization.id,
        "Too many accounts were created from your network. Try again later.",
        *network_limits(_PER_NETWORK, ip_address, "registration"),
    )
    if not organization.settings["authentication"]["registration"]["verify_email"]:
        _create_or_record_refusal(
            Actor.anonymous(organization.id, ip_address, request_id), organization, email, name, password_hash
        )
        return
    mailbox = Limit(bucket_key("registration address", canonical_email(email) or ""), _PER_MAILBOX)
    if not rate_limits.record_attempt(organization.id, mailbox).retry_after:
        values = {"email": email, "name": name, "password_hash": password_hash}
        _enqueue(organization.id, {**values, "address": ip_address, "request_id": request_id})


@transaction
def _enqueue(organization_id: str, values: dict[str, Any]) -> None:
    emails.enqueue_sealed(organization_id, REGISTRATION_MESSAGE, values, receiver="registration")


@transaction
def create_registered_user(
    actor: Actor,
    organization: OrganizationSnapshot,
    *,
    email: str,
    name: str,
    password_hash: str,
    email_verified: bool,
) -> UUID:
    """Create the user of a registration with the organization's default roles and return the id.

    Raises Conflict if the email is taken. Audit: ``user.registered`` in the actor's name.
    """
    user_id = create_user(
        organization.id,
        email=email,
        name=name,
        password_hash=password_hash,
        email_verified=email_verified,
        made_unproven=not email_verified,
    )
    system = Actor.system(organization.id, email)
    for role in dict.fromkeys(organization.settings["authentication"]["registration"]["default_roles"]):
        assign_role(system, organization.id, organization.id, user_id, role)
    audit.record_user_event(
        actor,
        "user.registered",
        user_id,
        after={"email": email, "name": name, "email_verified": email_verified},
    )
    return user_id


@transaction
def _create_or_record_refusal(
    actor: Actor, organization: OrganizationSnapshot, email: str, name: str, password_hash: str
) -> None:
    try:
        create_registered_user(
            actor,
            organization,
            email=email,
            name=name,
            password_hash=password_hash,
            email_verified=False,
        )
    except Conflict:
        audit.record(actor, "user.registration_refused", "user", after={"email": email})


@dataclass(frozen=True, slots=True)
class AccountLinkRecord:
    """A valid link without its token, with its account. ``address`` is the email that the link verifies, if any."""

    organization_id: str
    user_id: UUID
    digest: bytes
    is_mailed: bool
    address: str | None
    email: str
    email_canonical: str
    name: str
    password_hash: str | None = field(repr=False)


@transaction
def create_link(
    organization_id: str,
    user_id: UUID,
    purpose: str,
    *,
    lifetime: timedelta,
    is_mailed: bool,
    address: str | None = None,
) -> tuple[str, datetime]:
    """Create the user's only link for the purpose and return its token and expiry.

    An earlier link becomes invalid (RP-1). This one does when the password or the email changes.
    ``purpose`` is the token's kind. ``address`` is the email that the link verifies, if any. Call it in the
    transaction that audits it.
    """
    user = db.session.execute(
        select(User.password_hash, User.email_canonical).where(has_key(User, organization_id, user_id))
    ).one()
    token: str = current_unit_of_work().stable_value(
        f"link {purpose} {user_id}", lambda: new_token(purpose, organization_id)
    )
    now = clock.now()
    key = {"organization_id": organization_id, "user_id": user_id, "purpose": purpose}
    values = {
        "digest": digest(token),
        "bound_digest": _bound_digest(*user),
        "is_mailed": is_mailed,
        "address": address,
        "created_at": now,
        "expires_at": now + lifetime,
    }
    insert_or_update(AccountLink, key, values)
    return token, now + lifetime


@read
def find_link(
    organization_id: str, token: str, purpose: str, *, lifetime_seconds: int
) -> AccountLinkRecord | None:
    """Find the link of a token and its active user.

    Return None if the link was used or replaced or has expired, or if the user's password or email was changed.
    ``lifetime_seconds`` is the current lifetime of links with the purpose.
    """
    parsed = parse_token(token)
    if parsed is None or (parsed.kind, parsed.organization_id) != (purpose, organization_id):
        return None
    row = db.session.execute(
        select(
            AccountLink.user_id,
            AccountLink.is_mailed,
            AccountLink.address,
            AccountLink.bound_digest,
            AccountLink.created_at,
            AccountLink.expires_at,
            User.email,
            User.email_canonical,
            User.name,
            User.password_hash,
        )
        .join(User, is_same(User.id, AccountLink.user_id))
        .where(
            AccountLink.organization_id == organization_id,
            AccountLink.digest == digest(token),
            User.status == ACTIVE,
        )
    ).first()
    if row is None or earliest_expiry(row.expires_at, row.created_at, lifetime_seconds) <= clock.now():
        return None
    if get_organization_by_id(organization_id, fresh=False).is_before_restore(row.created_at):
        return None
    if row.bound_digest != _bound_digest(row.password_hash, row.email_canonical):
        return None
    return make_record(AccountLinkRecord, row, organization_id=organization_id, digest=digest(token))


@transaction
def consume_link(link: AccountLinkRecord) -> bool:
    """Delete the link, and return whether this caller was the one to use it, as the row count shows."""
    used = count_changed(
        delete(AccountLink).where(
            AccountLink.organization_id == link.organization_id,
            AccountLink.digest == link.digest,
            AccountLink.expires_at > clock.now(),
        )
    )
    return used == 1


@transaction
def revoke_links(organization_id: str, user_id: UUID, purpose: str | None = None) -> None:
    """Delete the user's links, only those with the purpose if one is given."""
    statement = delete(AccountLink).where(
        AccountLink.organization_id == organization_id, AccountLink.user_id == user_id
    )
    if purpose is not None:
        statement = statement.where(AccountLink.purpose == purpose)
    count_changed(statement)


def _bound_digest(password_hash: str | None, email_canonical: str) -> bytes:
    """Return the digest of what must not change until a link is used."""
    return hashlib.sha256(f"{password_hash or ''}\n{email_canonical}".encode()).digest()
