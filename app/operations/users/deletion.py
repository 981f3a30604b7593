"""Deleting a user: what hung from them ends, what was known of them is erased, their ``sub`` is nobody else's."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import delete, func, select, update

from app.extensions import db
from app.models.grant import Consent
from app.models.user import DELETED, Invitation, RoleAssignment, User
from app.operations.authorization import approval_requests
from app.operations.directory.lookups import get_organization_by_id
from app.operations.directory.permissions import get_user_roles
from app.operations.directory.users import UserSnapshot, get_user
from app.operations.grants.revocation import revoke_grants_of_user
from app.operations.mail.notices import notify_user
from app.operations.sign_in.actor_access import require_manageable_user
from app.operations.sign_in.known_browsers import forget_browsers_of_user
from app.operations.sign_in.reauthentication import require_fresh_sign_in, require_fresh_user_sign_in
from app.operations.sign_in.sessions import end_sessions_of_user, list_sessions
from app.operations.store import audit, clock
from app.operations.store.transactions import count_changed, read, transaction
from app.operations.users import account_links
from app.operations.users.factor_resets import remove_all_factors
from app.operations.users.role_assignments import require_no_last_administrator
from app.operations.users.user_changes import require_version
from app.operations.users.users import user_id_of
from app.rules.actor import Actor
from app.rules.directory.permissions import effective_roles
from app.rules.errors import Conflict, Forbidden, InvalidInput
from app.rules.mail.email_addresses import canonical_email
from app.tenant_fence import ACROSS


@dataclass(frozen=True, slots=True)
class UserDeletion:
    """How much ended with a user."""

    sessions: int
    grants: int
    consents: int
    roles: int


@transaction
def delete_user(actor: Actor, user_id: str, *, expected_version: int | None = None) -> UserDeletion:
    """The user is gone at once, with sign-ins, grants, consents and roles; the address is free again.

    The row stays without anything personal, so that the id in tokens (``sub``) never means another person (OI-1).
    What the audit log holds of them goes with its retention. Raises Forbidden (also when the user holds a role that
    the actor lacks), NotFound, FreshSignInRequired for a person who signed in too long ago, LastAdministrator,
    PreconditionFailed. Audit: ``user.deleted``.
    """
    actor.require("users:write")
    user = require_manageable_user(actor, user_id_of(user_id))
    require_version(user, expected_version)
    require_fresh_user_sign_in(actor)
    return erase_user(actor, user)


def erase_user(actor: Actor, user: UserSnapshot) -> UserDeletion:
    """What every deletion of a user does; part of the unit that has decided that it may be done."""
    here = user.organization_id
    require_no_last_administrator(here, user.id)
    # The row first: a sign-in under way waits at it, and finds nobody.
    _erase(user)
    ended = UserDeletion(
        sessions=end_sessions_of_user(here, user.id),
        grants=revoke_grants_of_user(actor, user.id, reason="user_deleted"),
        consents=count_changed(
            delete(Consent).where(Consent.organization_id == here, Consent.user_id == user.id)
        ),
        roles=count_changed(
            # In every organization: root's people hold roles elsewhere.
            delete(RoleAssignment)
            .where(RoleAssignment.user_organization_id == here, RoleAssignment.user_id == user.id)
            .execution_options(**ACROSS)
        ),
    )
    account_links.revoke_links(here, user.id)
    approval_requests.forget_requests_of(actor, user.id)
    remove_all_factors(here, user.id)
    forget_browsers_of_user(here, user.id)
    count_changed(
        delete(Invitation).where(
            Invitation.organization_id == here, Invitation.email_canonical == user.email_canonical
        )
    )
    audit.record(
        actor,
        "user.deleted",
        target_type="user",
        target_id=user.public_id,
        after={
            "ended_sessions": ended.sessions,
            "ended_grants": ended.grants,
            "ended_consents": ended.consents,
            "ended_roles": ended.roles,
        },
    )
    return ended


def _erase(user: UserSnapshot) -> None:
    erased = count_changed(
        update(User)
        .where(
            User.organization_id == user.organization_id,
            User.id == user.id,
            User.version == user.version,
            User.status != DELETED,
        )
        .values(
            status=DELETED,
            email="",
            # No address has a space: nobody can ask for this one.
            email_canonical=f"deleted {user.public_id}",
            email_verified=False,
            name="",
            profile={},
            password_hash=None,
            password_scheme=None,
            password_changed_at=None,
            last_sign_in_at=None,
            updated_at=clock.now(),
            version=user.version + 1,
        )
    )
    if erased != 1:
        raise Conflict("The user was changed at the same moment. Read them again.", code="busy")
    db.session.expire_all()


@dataclass(frozen=True, slots=True)
class AccountDeletionPreview:
    """What would end with the account: sign-ins, connected apps, and roles by their names."""

    user: UserSnapshot
    sessions: int
    apps: int
    roles: tuple[str, ...]


def can_delete_account(actor: Actor) -> bool:
    """Whether the organization lets the person delete the account that they are signed in to."""
    settings = get_organization_by_id(actor.organization_id).settings
    return bool(settings["user_permissions"]["members_can_delete_account"])


@read
def preview_account_deletion(actor: Actor) -> AccountDeletionPreview:
    """What ``delete_own_account`` would end. Raises Forbidden and FreshSignInRequired as that does."""
    user = _require_allowed(actor)
    known = effective_roles(get_organization_by_id(actor.organization_id).settings)
    held = get_user_roles(user.organization_id, user.organization_id, user.id)
    return AccountDeletionPreview(
        user,
        sessions=len(list_sessions(actor)),
        apps=_count_apps(user),
        roles=tuple(known[role].name if role in known else role for role in held),
    )


@transaction
def delete_own_account(actor: Actor, *, email: str) -> UserDeletion:
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
    return erase_user(actor, user)


def _count_apps(user: UserSnapshot) -> int:
    mine = (Consent.organization_id == user.organization_id, Consent.user_id == user.id)
    return db.session.scalar(select(func.count()).select_from(Consent).where(*mine)) or 0


def _require_allowed(actor: Actor) -> UserSnapshot:
    if actor.user_id is None or actor.organization_id != actor.home_organization_id:
        raise Forbidden("Only a person has an account.")
    if not can_delete_account(actor):
        raise Forbidden("Your organization does not let members delete their account. Ask an administrator.")
    require_fresh_sign_in(actor)
    return get_user(actor.organization_id, actor.user_id)
