"""Accounts that wait for their address to be proven, as administrators see them: they let people in, or do not.

Who is let in by an administrator has an address that nobody has proven: ``email_verified`` says what a mailed link
proved, and nothing else (OI-5).
"""

from __future__ import annotations

from sqlalchemy import Select, delete, func, select

from app.extensions import db
from app.models.account_link import Registration
from app.operations import audit, clock
from app.operations.addresses.registrations import RegistrationView, complete, view_of
from app.operations.directory import organization_by_id
from app.operations.pages import DEFAULT_LIMIT, CursorKey, Page, in_order
from app.operations.people.users import UserView, get_user
from app.operations.transaction import count_changed, read, transaction
from app.rules.actor import Actor
from app.rules.errors import NotFound
from app.rules.identifiers import encode_uuid, parse_public_id


@read
def list_registrations(
    actor: Actor, *, limit: int = DEFAULT_LIMIT, after: CursorKey | None = None
) -> Page[RegistrationView]:
    """Who waits in the organization, the newest first. Raises Forbidden."""
    actor.require("users:read")
    statement = in_order(_waiting(actor.organization_id).limit(limit + 1), [Registration.id], after)
    rows = db.session.scalars(statement).all()
    items = tuple(view_of(row) for row in rows[:limit])
    return Page(items, (encode_uuid(items[-1].id),) if len(rows) > limit else None)


@read
def count_registrations(actor: Actor) -> int:
    """How many wait; none for who may not see them."""
    if not actor.may("users:read"):
        return 0
    statement = select(func.count()).select_from(_waiting(actor.organization_id).limit(1000).subquery())
    return db.session.scalar(statement) or 0


@read
def get_registration(actor: Actor, registration_id: str) -> RegistrationView:
    """One that waits. Raises Forbidden, NotFound."""
    actor.require("users:read")
    row_id = parse_public_id("reg", registration_id)
    row = db.session.scalar(_waiting(actor.organization_id).where(Registration.id == row_id))
    if row_id is None or row is None:
        raise _unknown()
    return view_of(row)


@transaction
def admit_registration(actor: Actor, registration_id: str) -> UserView:
    """The person has the account, and signs in with the password that they chose; their address stays unproven.

    Raises Forbidden, NotFound, RegistrationEnded when the address has an account by now. Audit: ``user.registered``.
    """
    actor.require("users:write")
    found = get_registration(actor, registration_id)
    organization = organization_by_id(actor.organization_id)
    user_id = complete(actor, organization, found.id, email_verified=False)
    return get_user(organization.id, user_id)


@transaction
def refuse_registration(actor: Actor, registration_id: str) -> RegistrationView:
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
