"""Registrations that wait: the account is made when its address is proven, and nobody signs in before (OI-5).

Whoever opens the link has the mailbox, and types the password that was chosen when the account was asked for: so
neither somebody who registers a stranger's address nor a stranger who finds the mail has an account by it. Where there
is no mail server, an administrator lets people in (``waiting``).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Select, delete, func, select

from app.extensions import db
from app.models.user import Registration
from app.operations.directory.lookups import OrganizationSnapshot, get_organization_by_id
from app.operations.directory.users import UserSnapshot, find_user_by_email, get_user
from app.operations.mail import letters
from app.operations.mail.sealed_payloads import open_payload
from app.operations.sign_in.passwords import verify_password
from app.operations.store import audit, clock, outbox, rate_limits
from app.operations.store.outbox import DeliveryRejected, Message
from app.operations.store.pagination import DEFAULT_LIMIT, CursorKey, Page, paginate
from app.operations.store.rate_limits import Limit, bucket_key
from app.operations.store.transactions import count_changed, current_unit_of_work, read, transaction
from app.operations.users.email_verification import REGISTRATION_MESSAGE
from app.operations.users.sign_up import make_account
from app.rules.actor import Actor
from app.rules.errors import Conflict, InvalidInput, NotFound, TooManyRequests, Unavailable
from app.rules.identifiers import encode_uuid, new_id, parse_public_id, public_id
from app.rules.languages.sentences import sentence
from app.rules.mail.email_addresses import canonical_email
from app.rules.sign_in.lockout import Lockout
from app.rules.token_values import EMAIL_VERIFICATION, digest, new_token, parse_token
from app.rules.users.sign_up import is_open

REGISTRATION_LIFETIME = timedelta(days=7)
MAX_PENDING_PER_EMAIL = 5
"""That wait at a time; the oldest go. Those who ask with somebody else's address do not end the owner's at once."""
MAX_PENDING_PER_ORGANIZATION = 10_000
"""In an organization: strangers must not fill the table."""


class RegistrationEnded(Conflict):
    """It was confirmed, refused or replaced, its time is over, or the address has an account by now."""

    code = "registration_ended"

    def __init__(self) -> None:
        super().__init__("This link was used already or has expired. Sign in, or make the account again.")


@dataclass(frozen=True, slots=True)
class RegistrationRecord:
    """An account that somebody asked for, without password and token."""

    organization_id: str
    id: UUID
    email: str
    name: str
    is_mailed: bool
    address: str | None
    created_at: datetime
    expires_at: datetime

    @property
    def public_id(self) -> str:
        """``reg_…``."""
        return public_id("reg", self.id)


def register() -> None:
    """The outbox answers those who asked for an account."""
    outbox.register_delivery(REGISTRATION_MESSAGE, answer, receiver_type="registration")


@transaction
def answer(message: Message) -> None:
    """The account waits for its address to be proven, or the one who has it already is told.

    Raises Refused when the organization has gone, takes nobody any more, or has too many waiting. Audit:
    ``registration.asked`` or ``user.registration_refused``.
    """
    organization = _still_open(message.organization_id)
    asked = open_payload(organization.id, REGISTRATION_MESSAGE, message.payload)
    stranger = Actor.anonymous(organization.id, asked["address"], asked["request_id"])
    home = f"{organization.base_url}/organizations/{organization.slug}"
    if find_user_by_email(organization.id, asked["email"]) is not None:
        values = {"email": asked["email"], "link": f"{home}/login", "forgot": f"{home}/forgot"}
        letters.send(organization, asked["email"], "account_exists", values)
        audit.record(
            stranger, "user.registration_refused", target_type="user", after={"email": asked["email"]}
        )
        return
    token, view = _keep(organization, asked)
    audit.record(
        stranger,
        "registration.asked",
        target_type="registration",
        target_id=view.public_id,
        after={"email": view.email, "name": view.name},
    )
    values = {
        "name": view.name,
        "email": view.email,
        "link": f"{home}/confirm/{token}",
        "until": view.expires_at.isoformat(),
    }
    letters.send(organization, view.email, "confirm_registration", values, until=view.expires_at)


@read
def find_registration(organization: OrganizationSnapshot, token: str) -> RegistrationRecord | None:
    """What the link is about, or None when it has ended or the organization takes nobody any more."""
    row = _find_row(organization, token)
    return None if row is None else view_of(row)


def confirm_registration(
    organization: OrganizationSnapshot,
    token: str,
    password: str,
    *,
    address: str | None = None,
    request_id: str | None = None,
) -> RegistrationRecord:
    """The account stands, with an address that is verified by a mailed link; nobody is signed in.

    Needs the password that was chosen when it was asked for, whose wrong guesses are counted. Raises
    RegistrationEnded, InvalidInput naming ``password``, TooManyRequests, Unavailable. Audit: ``user.registered``.
    """
    found = _read(organization, token)
    if found is None:
        raise RegistrationEnded
    view, password_hash = found
    limit = Limit(bucket_key("registration password", view.public_id), Lockout.of(organization.settings))
    claim = rate_limits.record_attempt(organization.id, limit)
    if claim.retry_after:
        raise TooManyRequests(
            sentence("Too many wrong passwords. Try again in %(wait)s seconds.", wait=claim.retry_after),
            retry_after=claim.retry_after,
        )
    try:
        is_right, _ = verify_password(
            password_hash, password, organization_id=organization.id, address=address
        )
    except Unavailable:
        rate_limits.withdraw_attempts(organization.id, claim.attempts)
        raise
    if not is_right:
        raise InvalidInput(
            "This is not the password that was chosen for this account.",
            field="password",
            code="wrong_password",
        )
    rate_limits.clear_attempts(organization.id, limit.bucket)
    complete(
        Actor.anonymous(organization.id, address, request_id),
        organization,
        view.id,
        email_verified=view.is_mailed,
    )
    return view


@transaction
def complete(
    actor: Actor, organization: OrganizationSnapshot, registration_id: UUID, *, email_verified: bool
) -> UUID:
    """The account stands and nothing else waits for its address; returns the user's id.

    Raises RegistrationEnded. Audit: ``user.registered`` in the actor's name.
    """
    row = db.session.get(Registration, (organization.id, registration_id), populate_existing=True)
    if row is None:
        raise RegistrationEnded
    email, name, password_hash = row.email, row.name, row.password_hash
    canonical = row.email_canonical
    db.session.expunge(row)
    # The row count decides between two who come at once.
    if not _remove(organization.id, Registration.id == registration_id):
        raise RegistrationEnded
    _remove(organization.id, Registration.email_canonical == canonical)
    try:
        return make_account(
            actor,
            organization,
            email=email,
            name=name,
            password_hash=password_hash,
            email_verified=email_verified,
        )
    except Conflict as taken:
        raise RegistrationEnded from taken


def view_of(row: Registration) -> RegistrationRecord:
    """The row, without the password's hash."""
    return RegistrationRecord(
        row.organization_id,
        row.id,
        row.email,
        row.name,
        row.is_mailed,
        row.address,
        row.created_at,
        row.expires_at,
    )


@read
def _read(organization: OrganizationSnapshot, token: str) -> tuple[RegistrationRecord, str] | None:
    row = _find_row(organization, token)
    return None if row is None else (view_of(row), row.password_hash)


def _find_row(organization: OrganizationSnapshot, token: str) -> Registration | None:
    parsed = parse_token(token)
    if parsed is None or (parsed.kind, parsed.organization_id) != (EMAIL_VERIFICATION, organization.id):
        return None
    if not organization.is_active or not is_open(organization.settings):
        return None
    row = db.session.scalar(
        select(Registration).where(
            Registration.organization_id == organization.id, Registration.digest == digest(token)
        )
    )
    return None if row is None or row.expires_at <= clock.now() else row


def _still_open(organization_id: str) -> OrganizationSnapshot:
    try:
        organization = get_organization_by_id(organization_id)
    except NotFound:
        raise DeliveryRejected("its organization is gone") from None
    if not organization.is_active or not is_open(organization.settings):
        raise DeliveryRejected("nobody makes accounts for themselves any more")
    waiting = db.session.scalar(select(func.count()).where(Registration.organization_id == organization_id))
    if (waiting or 0) >= MAX_PENDING_PER_ORGANIZATION:
        raise DeliveryRejected("too many wait already")
    return organization


def _keep(organization: OrganizationSnapshot, asked: dict[str, Any]) -> tuple[str, RegistrationRecord]:
    unit = current_unit_of_work()
    token: str = unit.stable_value("registration", lambda: new_token(EMAIL_VERIFICATION, organization.id))
    now = clock.now()
    canonical = canonical_email(asked["email"]) or ""
    standing = db.session.scalars(
        select(Registration.id)
        .where(Registration.organization_id == organization.id, Registration.email_canonical == canonical)
        .order_by(Registration.id.desc())
        .offset(MAX_PENDING_PER_EMAIL - 1)
        .limit(100)
    ).all()
    if standing:
        _remove(organization.id, Registration.id.in_(standing))
    row = Registration(
        organization_id=organization.id,
        id=unit.stable_value("registration id", new_id),
        digest=digest(token),
        email=asked["email"].strip(),
        email_canonical=canonical,
        name=asked["name"],
        password_hash=asked["password_hash"],
        is_mailed=letters.is_possible(),
        address=(asked["address"] or "")[:64] or None,
        created_at=now,
        expires_at=now + REGISTRATION_LIFETIME,
    )
    db.session.add(row)
    return token, view_of(row)


def _remove(organization_id: str, condition: Any) -> int:
    return count_changed(
        delete(Registration).where(Registration.organization_id == organization_id, condition)
    )


@read
def list_registrations(
    actor: Actor, *, limit: int = DEFAULT_LIMIT, after: CursorKey | None = None
) -> Page[RegistrationRecord]:
    """Who waits in the organization, the newest first. Raises Forbidden."""
    actor.require("users:read")
    statement = paginate(_waiting(actor.organization_id).limit(limit + 1), [Registration.id], after)
    rows = db.session.scalars(statement).all()
    items = tuple(view_of(row) for row in rows[:limit])
    return Page(items, (encode_uuid(items[-1].id),) if len(rows) > limit else None)


@read
def count_registrations(actor: Actor) -> int:
    """How many wait; none for who may not see them."""
    if not actor.has_permission("users:read"):
        return 0
    statement = select(func.count()).select_from(_waiting(actor.organization_id).limit(1000).subquery())
    return db.session.scalar(statement) or 0


@read
def get_registration(actor: Actor, registration_id: str) -> RegistrationRecord:
    """One that waits. Raises Forbidden, NotFound."""
    actor.require("users:read")
    row_id = parse_public_id("reg", registration_id)
    row = db.session.scalar(_waiting(actor.organization_id).where(Registration.id == row_id))
    if row_id is None or row is None:
        raise _unknown()
    return view_of(row)


@transaction
def admit_registration(actor: Actor, registration_id: str) -> UserSnapshot:
    """The person has the account, and signs in with the password that they chose; their address stays unproven.

    Raises Forbidden, NotFound, RegistrationEnded when the address has an account by now. Audit: ``user.registered``.
    """
    actor.require("users:write")
    found = get_registration(actor, registration_id)
    organization = get_organization_by_id(actor.organization_id)
    user_id = complete(actor, organization, found.id, email_verified=False)
    return get_user(organization.id, user_id)


@transaction
def refuse_registration(actor: Actor, registration_id: str) -> RegistrationRecord:
    """Nobody has that account, and its link is of use no more; nobody is told.

    Raises Forbidden, NotFound. Audit: ``registration.refused``.
    """
    actor.require("users:write")
    found = get_registration(actor, registration_id)
    gone = count_changed(
        delete(Registration).where(
            Registration.organization_id == actor.organization_id, Registration.id == found.id
        )
    )
    if not gone:
        raise _unknown()
    audit.record(
        actor,
        "registration.refused",
        target_type="registration",
        target_id=found.public_id,
        before={"email": found.email, "name": found.name},
    )
    return found


def _waiting(organization_id: str) -> Select[Registration]:
    return select(Registration).where(
        Registration.organization_id == organization_id, Registration.expires_at > clock.now()
    )


def _unknown() -> NotFound:
    return NotFound("Nobody waits under this id.")
