"""Pending registrations, which become accounts when the email is verified (OI-5).

Confirming needs both the emailed link and the password chosen at registration. So neither someone who
registers another person's email nor a stranger who finds the message gets an account. Without a mail server,
an administrator approves registrations.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import Select, bindparam, delete, select

from app.extensions import db
from app.models.user import Registration
from app.operations.directory.lookups import created_after_restore, get_organization_by_id
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.directory.users import UserSnapshot, find_user_by_email, get_user
from app.operations.mail import emails
from app.operations.mail.emails import open_payload
from app.operations.sign_in.passwords import verify_password
from app.operations.store import audit, clock, outbox, rate_limits
from app.operations.store.outbox import DeliveryRejected, Message
from app.operations.store.rate_limits import Limit, bucket_key
from app.operations.store.rows import (
    Page,
    PageRequest,
    count_query,
    count_where,
    get_row,
    make_record,
    read_page,
)
from app.operations.store.transactions import count_changed, current_unit_of_work, read, transaction
from app.operations.users.sign_up import REGISTRATION_MESSAGE, create_registered_user
from app.rules.actor import Actor
from app.rules.errors import Conflict, HasDefaultText, InvalidInput, NotFound, TooManyRequests, Unavailable
from app.rules.identifiers import (
    EMAIL_VERIFICATION,
    HasPublicId,
    digest,
    is_token_of,
    new_id,
    new_token,
    parse_public_id,
)
from app.rules.languages.translation import lazy_gettext
from app.rules.mail.email_addresses import canonical_email
from app.rules.sign_in.passwords import Lockout
from app.rules.users.profile import is_domain_allowed, is_registration_open

REGISTRATION_LIFETIME = timedelta(days=7)
MAX_PENDING_PER_EMAIL = 5
"""The oldest are deleted, so that registrations by others do not immediately replace the owner's."""
MAX_PENDING_PER_ORGANIZATION = 10_000
"""Keeps strangers from filling the table."""


class RegistrationEnded(HasDefaultText, Conflict):
    """It was confirmed, rejected or replaced or has expired, or the email has an account by now."""

    code = "registration_ended"
    default_description = lazy_gettext(
        "This link was already used or has expired. Sign in, or sign up again."
    )


class RegistrationRecord(HasPublicId, Struct, frozen=True):
    """A pending registration without password and token."""

    id_prefix = "reg"
    organization_id: str
    id: UUID
    email: str
    name: str
    is_mailed: bool
    address: str | None
    created_at: datetime
    expires_at: datetime


def register_registration_delivery() -> None:
    """Register the processing of registrations with the outbox."""
    outbox.register_delivery(REGISTRATION_MESSAGE, process_registration, receiver_type="registration")


@transaction
def process_registration(message: Message) -> None:
    """Store the pending registration and email its link, or notify the owner of an existing account.

    Raises DeliveryRejected when the organization was deleted, is closed to registrations or to emails of this domain,
    or has too many pending ones. Audit: ``registration.asked`` or ``user.registration_refused``.
    """
    organization = _require_still_open(message)
    request = open_payload(organization.id, REGISTRATION_MESSAGE, message.payload)
    if not is_domain_allowed(request["email"], organization.settings):
        raise DeliveryRejected("registration is closed to emails of this domain")
    anonymous = Actor.anonymous(organization.id, request["address"], request["request_id"])
    organization_url = f"{organization.base_url}/organizations/{organization.slug}"
    existing_user = find_user_by_email(organization.id, request["email"])
    profile = existing_user.profile if existing_user is not None else {}
    # Both are absent from a message that an earlier release has queued.
    language = emails.language_of(organization, profile, request.get("page_language"))
    authorization_request = request.get("authorization_request")
    if existing_user is not None:
        values = {
            "email": request["email"],
            "link": emails.link_to_page(f"{organization_url}/login", authorization_request),
            "forgot": emails.link_to_page(f"{organization_url}/forgot", authorization_request),
        }
        emails.send(organization, request["email"], "account_exists", values, language=language)
        audit.record(anonymous, "user.registration_refused", "user", after={"email": request["email"]})
        return
    token, record = _store(organization, request)
    audit.record(
        anonymous,
        "registration.asked",
        "registration",
        record.public_id,
        after={"email": record.email, "name": record.name},
    )
    # Without the name: a stranger chose it, and the address.
    values = {
        "email": record.email,
        "link": emails.link_to_page(f"{organization_url}/confirm/{token}", authorization_request),
        "until": record.expires_at.isoformat(),
    }
    emails.send(
        organization,
        record.email,
        "confirm_registration",
        values,
        until=record.expires_at,
        language=language,
    )


@read
def find_registration(organization: OrganizationSnapshot, token: str) -> RegistrationRecord | None:
    """Find the pending registration of a link, or None if it has ended or registration was closed to its email."""
    row = _find_row(organization, token)
    return None if row is None else registration_record(row)


def confirm_registration(
    organization: OrganizationSnapshot,
    token: str,
    password: str,
    *,
    ip_address: str | None = None,
    request_id: str | None = None,
) -> RegistrationRecord:
    """Create the account with a verified email. The user is not signed in.

    Needs the password chosen at registration, with a limit on wrong guesses. Raises RegistrationEnded,
    InvalidInput naming ``password``, TooManyRequests, Unavailable. Audit: ``user.registered``.
    """
    pending = _find_with_password_hash(organization, token)
    if pending is None:
        raise RegistrationEnded
    record, password_hash = pending
    limit = Limit(bucket_key("registration password", record.public_id), Lockout.of(organization.settings))
    claim = rate_limits.record_attempt(organization.id, limit)
    if claim.retry_after:
        raise TooManyRequests(
            lazy_gettext(
                "Too many incorrect passwords. Try again in %(wait)s seconds.", wait=claim.retry_after
            ),
            retry_after=claim.retry_after,
        )
    try:
        is_right, _ = verify_password(
            password_hash, password, organization_id=organization.id, ip_address=ip_address
        )
    except Unavailable:
        rate_limits.withdraw_attempts(organization.id, claim.attempts)
        raise
    if not is_right:
        raise InvalidInput(
            "Incorrect password. Enter the password you chose when you signed up.",
            field="password",
            code="wrong_password",
        )
    rate_limits.clear_attempts(organization.id, limit.bucket)
    complete_registration(
        Actor.anonymous(organization.id, ip_address, request_id),
        organization,
        record.id,
        email_verified=record.is_mailed,
    )
    return record


@transaction
def complete_registration(
    actor: Actor, organization: OrganizationSnapshot, registration_id: UUID, *, email_verified: bool
) -> UUID:
    """Create the account, delete the other registrations of its email, and return the user's id.

    Raises RegistrationEnded, and Conflict if the organization has as many users as it may; the registration then stays.
    Audit: ``user.registered`` in the actor's name.
    """
    row = db.session.get(Registration, (organization.id, registration_id), populate_existing=True)
    if row is None:
        raise RegistrationEnded
    email, name, password_hash = row.email, row.name, row.password_hash
    canonical = row.email_canonical
    db.session.expunge(row)
    # The row count decides between concurrent callers.
    if not _delete(organization.id, Registration.id == registration_id):
        raise RegistrationEnded
    _delete(organization.id, Registration.email_canonical == canonical)
    try:
        return create_registered_user(
            actor,
            organization,
            email=email,
            name=name,
            password_hash=password_hash,
            email_verified=email_verified,
        )
    except Conflict as error:
        if error.code != "email_taken":
            raise
        raise RegistrationEnded from error


def registration_record(row: Registration) -> RegistrationRecord:
    """Return the record of a row."""
    return make_record(RegistrationRecord, row)


@read
def list_registrations(actor: Actor, page_request: PageRequest = PageRequest()) -> Page[RegistrationRecord]:
    """Return a page of the organization's pending registrations, newest first. Raises Forbidden."""
    actor.require("users:read")
    pending = _select_pending(actor.organization_id)
    return read_page(pending, (Registration.id,), page_request).map(registration_record)


_COUNT_PENDING = count_query(
    select(Registration.id)
    .where(
        Registration.organization_id == bindparam("organization_id"),
        Registration.expires_at > bindparam("now", type_=Registration.expires_at.type),
        Registration.created_at >= bindparam("since", type_=Registration.created_at.type),
    )
    .limit(1000)
)


def count_registrations(actor: Actor) -> int:
    """Count the pending registrations up to a thousand, 0 if the actor may not see them."""
    if not actor.has_permission("users:read"):
        return 0
    now = clock.now()
    restored_at = get_organization_by_id(actor.organization_id, fresh=False).restored_at
    since = restored_at or now - REGISTRATION_LIFETIME
    return int(_COUNT_PENDING.first(organization_id=actor.organization_id, now=now, since=since)[0])


@read
def get_registration(actor: Actor, registration_id: str) -> RegistrationRecord:
    """Return a pending registration. Raises Forbidden, NotFound."""
    actor.require("users:read")
    pending = _select_pending(actor.organization_id)
    statement = pending.where(Registration.id == parse_public_id("reg", registration_id))
    return registration_record(get_row(statement, "There is no pending registration with this ID."))


@transaction
def approve_registration(actor: Actor, registration_id: str) -> UserSnapshot:
    """Create the account of a pending registration, with an unverified email.

    The user signs in with their chosen password. Raises Forbidden, NotFound, RegistrationEnded when the email
    has an account by now. Audit: ``user.registered``.
    """
    actor.require("users:write")
    pending = get_registration(actor, registration_id)
    organization = get_organization_by_id(actor.organization_id)
    user_id = complete_registration(actor, organization, pending.id, email_verified=False)
    return get_user(organization.id, user_id)


@transaction
def reject_registration(actor: Actor, registration_id: str) -> RegistrationRecord:
    """Delete a pending registration without notifying anyone.

    Raises Forbidden, NotFound. Audit: ``registration.refused``.
    """
    actor.require("users:write")
    pending = get_registration(actor, registration_id)
    if not _delete(actor.organization_id, Registration.id == pending.id):
        raise NotFound("There is no pending registration with this ID.")
    audit.record(
        actor,
        "registration.refused",
        "registration",
        pending.public_id,
        before={"email": pending.email, "name": pending.name},
    )
    return pending


@read
def _find_with_password_hash(
    organization: OrganizationSnapshot, token: str
) -> tuple[RegistrationRecord, str] | None:
    row = _find_row(organization, token)
    return None if row is None else (registration_record(row), row.password_hash)


def _find_row(organization: OrganizationSnapshot, token: str) -> Registration | None:
    if not is_token_of(token, EMAIL_VERIFICATION, organization.id):
        return None
    if not organization.is_active or not is_registration_open(organization.settings):
        return None
    row = db.session.scalar(
        select(Registration).where(
            Registration.organization_id == organization.id, Registration.digest == digest(token)
        )
    )
    if row is None or row.expires_at <= clock.now() or organization.is_before_restore(row.created_at):
        return None
    if not is_domain_allowed(row.email, organization.settings):
        return None
    return row


def _require_still_open(message: Message) -> OrganizationSnapshot:
    organization = emails.get_organization_of_message(message)
    if not organization.is_active or not is_registration_open(organization.settings):
        raise DeliveryRejected("registration is closed")
    if count_where(Registration.organization_id == organization.id) >= MAX_PENDING_PER_ORGANIZATION:
        raise DeliveryRejected("too many registrations are pending")
    return organization


def _store(organization: OrganizationSnapshot, request: dict[str, Any]) -> tuple[str, RegistrationRecord]:
    unit = current_unit_of_work()
    token: str = unit.stable_value("registration", lambda: new_token(EMAIL_VERIFICATION, organization.id))
    now = clock.now()
    canonical = canonical_email(request["email"]) or ""
    excess = db.session.scalars(
        select(Registration.id)
        .where(Registration.organization_id == organization.id, Registration.email_canonical == canonical)
        .order_by(Registration.id.desc())
        .offset(MAX_PENDING_PER_EMAIL - 1)
        .limit(100)
    ).all()
    if excess:
        _delete(organization.id, Registration.id.in_(excess))
    row = Registration(
        organization_id=organization.id,
        id=unit.stable_value("registration id", new_id),
        digest=digest(token),
        email=request["email"].strip(),
        email_canonical=canonical,
        name=request["name"],
        password_hash=request["password_hash"],
        is_mailed=emails.is_possible(),
        address=(request["address"] or "")[:64] or None,
        created_at=now,
        expires_at=now + REGISTRATION_LIFETIME,
    )
    db.session.add(row)
    return token, registration_record(row)


def _delete(organization_id: str, condition: Any) -> int:
    return count_changed(
        delete(Registration).where(Registration.organization_id == organization_id, condition)
    )


def _select_pending(organization_id: str) -> Select[Registration]:
    return select(Registration).where(
        Registration.organization_id == organization_id,
        Registration.expires_at > clock.now(),
        created_after_restore(Registration.created_at, organization_id),
    )
