"""Deleting one's own account, where the organization lets its members do so."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select

from app.extensions import db
from app.models.grant import Consent
from app.operations.directory import organization_by_id
from app.operations.mail.notices import notify_user
from app.operations.people.freshness import require_fresh_sign_in
from app.operations.people.own_sessions import list_sessions
from app.operations.people.rights import roles_of_user
from app.operations.people.users import UserView, get_user
from app.operations.transaction import read, transaction
from app.operations.user_administration.deletion import EndedWithUser, end_user
from app.rules.actor import Actor
from app.rules.errors import Forbidden, InvalidInput
from app.rules.people.emails import canonical_email
from app.rules.people.permissions import roles_of


@dataclass(frozen=True, slots=True)
class OwnEnd:
    """What would end with the account: sign-ins, connected apps, and roles by their names."""

    user: UserView
    sessions: int
    apps: int
    roles: tuple[str, ...]


def may_delete_account(actor: Actor) -> bool:
    """Whether the organization lets the person delete the account that they are signed in to."""
    settings = organization_by_id(actor.organization_id).settings
    return bool(settings["user_permissions"]["members_can_delete_account"])


@read
def preview_own_end(actor: Actor) -> OwnEnd:
    """What ``delete_own_account`` would end. Raises Forbidden and FreshSignInRequired as that does."""
    user = _require_allowed(actor)
    known = roles_of(organization_by_id(actor.organization_id).settings)
    held = roles_of_user(user.organization_id, user.organization_id, user.id)
    return OwnEnd(
        user,
        sessions=len(list_sessions(actor)),
        apps=_count_apps(user),
        roles=tuple(known[role].name if role in known else role for role in held),
    )


@transaction
def delete_own_account(actor: Actor, *, email: str) -> EndedWithUser:
    """The actor's own account is gone at once, with all that hung from it, as when an administrator deletes it.

    ``email`` is the account's address, typed by whoever means it. The person is told by mail. Raises Forbidden where
    the organization does not allow it, FreshSignInRequired, InvalidInput naming ``email``, LastAdministrator. Audit:
    ``user.deleted``, by the person.
    """
    user = _require_allowed(actor)
    if canonical_email(email) != user.email_canonical:
        raise InvalidInput(
            "This is not your address. Type it as it stands above.", field="email", code="mismatch"
        )
    notify_user(actor, user.id, "account_deleted")
    return end_user(actor, user)


def _count_apps(user: UserView) -> int:
    mine = (Consent.organization_id == user.organization_id, Consent.user_id == user.id)
    return db.session.scalar(select(func.count()).select_from(Consent).where(*mine)) or 0


def _require_allowed(actor: Actor) -> UserView:
    if actor.user_id is None or actor.organization_id != actor.home_organization_id:
        raise Forbidden("Only a person has an account.")
    if not may_delete_account(actor):
        raise Forbidden("Your organization does not let members delete their account. Ask an administrator.")
    require_fresh_sign_in(actor)
    return get_user(actor.organization_id, actor.user_id)
