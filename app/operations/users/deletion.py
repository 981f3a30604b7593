"""Deleting a user: end their sessions and grants and erase their data. The ``sub`` is never reused."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from sqlalchemy import delete, select

from app.database import ACROSS
from app.extensions import db
from app.models.base import is_of_user
from app.models.grant import Consent
from app.models.identity_provider import LinkedIdentity
from app.models.user import DELETED, AppRoleAssignment, GroupMember, Invitation, RoleAssignment, User
from app.operations.authorization import approval_requests
from app.operations.directory.lookups import get_organization_by_id, get_user_roles, is_served_here
from app.operations.directory.users import UserSnapshot, get_user, parse_user_id, update_user_row
from app.operations.grants.revocation import revoke_grants_of_user
from app.operations.mail.notices import notify_user
from app.operations.sign_in.actor_access import require_manageable_user
from app.operations.sign_in.known_browsers import forget_browsers_of_user
from app.operations.sign_in.linked_identities import delete_identities_of_user
from app.operations.sign_in.reauthentication import require_fresh_sign_in, require_fresh_user_sign_in
from app.operations.sign_in.sessions import end_sessions_of_user, list_sessions
from app.operations.store import audit
from app.operations.store.rows import count_rows
from app.operations.store.transactions import count_changed, read, transaction
from app.operations.users import account_links
from app.operations.users.erased_labels import erase_labels
from app.operations.users.factor_resets import remove_all_factors
from app.operations.users.role_assignments import require_other_administrators_everywhere
from app.operations.users.user_changes import update_unchanged_user
from app.rules.actor import Actor
from app.rules.directory.permissions import effective_roles
from app.rules.errors import Forbidden, InvalidInput
from app.rules.mail.email_addresses import canonical_email
from app.rules.versions import ExpectedVersion, require_version

_UNMANAGED: Mapping[str, None] = dict.fromkeys(("provisioned_by", "external_id", "user_name"))
# Rows of users that release 0.1 does not know.
_UNKNOWN_EARLIER = (LinkedIdentity, GroupMember, AppRoleAssignment)


class UserDeletion(Struct, frozen=True):
    """Numbers of rows deleted with a user."""

    sessions: int
    grants: int
    consents: int
    roles: int


class AccountDeletionPreview(Struct, frozen=True):
    """The sessions, connected apps and roles that would be deleted with the account."""

    user: UserSnapshot
    sessions: int
    apps: int
    roles: tuple[str, ...]


@transaction
def delete_user(actor: Actor, user_id: str, *, expected_version: ExpectedVersion = None) -> UserDeletion:
    """Delete a user with their sessions, grants, consents and roles. The email becomes available again.

    The row remains without personal data, so that its id (``sub``) never identifies another user (OI-1). Rows that the
    user created name this id instead of the email. The audit log keeps the user's data until its retention ends. Raises
    Forbidden (also when the user has a role that the actor lacks), NotFound, FreshSignInRequired for a user who signed
    in too long ago, LastAdministrator, PreconditionFailed. Audit: ``user.deleted``.
    """
    actor.require("users:write")
    user = require_manageable_user(actor, parse_user_id(user_id))
    require_version(user.version, expected_version)
    require_fresh_user_sign_in(actor)
    return erase_user(actor, user)


def erase_user(actor: Actor, user: UserSnapshot) -> UserDeletion:
    """Delete the user's data in the transaction that decided that it is allowed."""
    organization_id = user.organization_id
    require_other_administrators_everywhere(organization_id, user.id)
    # Before the user, in the order of locks: who accepts an invitation adds the user after it.
    count_changed(
        delete(Invitation).where(
            Invitation.organization_id == organization_id, Invitation.email_canonical == user.email_canonical
        )
    )
    erase_labels(user)
    # Then update the user's row, so that a concurrent sign-in waits for it and then fails.
    _erase(user)
    ended = UserDeletion(
        sessions=end_sessions_of_user(organization_id, user.id),
        grants=revoke_grants_of_user(actor, user.id, reason="user_deleted"),
        consents=count_changed(delete(Consent).where(is_of_user(Consent, organization_id, user.id))),
        roles=count_changed(
            # In every organization, because root's users have roles in others.
            delete(RoleAssignment)
            .where(RoleAssignment.user_organization_id == organization_id, RoleAssignment.user_id == user.id)
            .execution_options(**ACROSS)
        ),
    )
    account_links.revoke_links(organization_id, user.id)
    approval_requests.delete_requests_of_user(actor, user.id)
    remove_all_factors(organization_id, user.id)
    delete_identities_of_user(organization_id, user.id)
    forget_browsers_of_user(organization_id, user.id)
    for membership in (GroupMember, AppRoleAssignment):
        count_changed(delete(membership).where(is_of_user(membership, organization_id, user.id)))
    audit.record_user_event(
        actor,
        "user.deleted",
        user.id,
        after={
            "ended_sessions": ended.sessions,
            "ended_grants": ended.grants,
            "ended_consents": ended.consents,
            "ended_roles": ended.roles,
        },
    )
    return ended


@transaction
def finish_deletions(organization_id: str, limit: int) -> int:
    """Erase what a host with release 0.1 left of users whom it deleted, and return of how many, at most ``limit``.

    It may run beside this one during an upgrade. Neither the account at a provider nor the ``externalId`` could be
    another user's.
    """
    is_deleted = (User.organization_id == organization_id) & (User.status == DELETED)
    is_deleted &= is_served_here(User.organization_id)
    is_managed = User.provisioned_by.is_not(None) | User.attributes.is_not(None)
    users = set(db.session.scalars(select(User.id).where(is_deleted, is_managed).limit(limit)))
    for model in _UNKNOWN_EARLIER:
        of_user = (model.organization_id == organization_id) & (model.user_id == User.id)
        users |= set(db.session.scalars(select(User.id).join(model, of_user).where(is_deleted).limit(limit)))
    chosen = sorted(users)[:limit]
    for user_id in chosen:
        for model in _UNKNOWN_EARLIER:
            count_changed(delete(model).where(is_of_user(model, organization_id, user_id)))
        update_user_row(organization_id, user_id, attributes=None, **_UNMANAGED)
    return len(chosen)


def can_delete_account(actor: Actor) -> bool:
    """Return whether the organization lets its members delete their own account."""
    settings = get_organization_by_id(actor.organization_id).settings
    return bool(settings["user_permissions"]["members_can_delete_account"])


@read
def preview_account_deletion(actor: Actor) -> AccountDeletionPreview:
    """Return what ``delete_own_account`` would delete. Raises Forbidden, FreshSignInRequired."""
    user = _require_allowed(actor)
    defined_roles = effective_roles(get_organization_by_id(actor.organization_id).settings)
    roles = get_user_roles(user.organization_id, user.organization_id, user.id)
    return AccountDeletionPreview(
        user,
        sessions=len(list_sessions(actor)),
        apps=_count_apps(user),
        roles=tuple(defined_roles[role].name if role in defined_roles else role for role in roles),
    )


@transaction
def delete_own_account(actor: Actor, *, email: str) -> UserDeletion:
    """Delete the actor's own account as an administrator would.

    ``email`` is the account's email, typed as a confirmation. The user is notified by email. Raises Forbidden
    if the organization does not allow it, FreshSignInRequired, InvalidInput naming ``email``,
    LastAdministrator. Audit: ``user.deleted`` by the user.
    """
    user = _require_allowed(actor)
    if canonical_email(email) != user.email_canonical:
        raise InvalidInput(
            "This is not your email address. Type it exactly as shown above.", field="email", code="mismatch"
        )
    notify_user(actor, user.id, "account_deleted")
    return erase_user(actor, user)


def _erase(user: UserSnapshot) -> None:
    update_unchanged_user(
        user,
        status=DELETED,
        email="",
        # Emails have no spaces, so no one can register this one.
        email_canonical=f"deleted {user.public_id}",
        email_verified=False,
        name="",
        profile={},
        attributes=None,
        password_hash=None,
        password_scheme=None,
        password_changed_at=None,
        last_sign_in_at=None,
        **_UNMANAGED,
    )


def _count_apps(user: UserSnapshot) -> int:
    own = is_of_user(Consent, user.organization_id, user.id)
    return count_rows(select(Consent.id).where(own))


def _require_allowed(actor: Actor) -> UserSnapshot:
    user_id = actor.require_own_account()
    if not can_delete_account(actor):
        raise Forbidden(
            "Your organization doesn't let members delete their account. Contact your administrator."
        )
    require_fresh_sign_in(actor)
    return get_user(actor.organization_id, user_id)
